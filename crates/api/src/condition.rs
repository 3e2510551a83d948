//! Conditions as every kind of this API reports them, and how they change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet. Any other text is read as this, because the API does not restrict it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One fact about an object, with the times of its last check and last change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition, such as Available.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether the condition holds: True, False or Unknown.
    #[schemars(with = "String")]
    pub status: ConditionStatus,
    /// The reason for the status, as one word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason for the status, as a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the condition was last checked, whether it changed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// When status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// The conditions of an object, in the order in which they were first set.
///
/// The order is part of the API: `kubectl get` prints the first condition that is true.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ConditionList(Vec<Condition>);

impl ConditionList {
    /// Sets a condition. A new type is appended; `lastTransitionTime` changes only with the status, `lastHeartbeatTime`
    /// always.
    pub fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) {
        let now = whole_second(now);
        let condition = if let Some(index) = self.0.iter().position(|known| known.type_ == type_) {
            &mut self.0[index]
        } else {
            let new = Condition { type_: type_.to_owned(), ..Condition::default() };
            self.0.push_mut(new)
        };
        if condition.status != status || condition.last_transition_time.is_none() {
            condition.last_transition_time = Some(now.clone());
        }
        condition.status = status;
        reason.clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
        condition.last_heartbeat_time = Some(now);
    }

    /// The condition of a type.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.type_ == type_)
    }

    /// The status of a type; `Unknown` if it was never set.
    pub fn status(&self, type_: &str) -> ConditionStatus {
        self.get(type_).map_or(ConditionStatus::Unknown, |condition| condition.status)
    }

    /// Whether the condition of a type is set and true.
    pub fn is_true(&self, type_: &str) -> bool {
        self.status(type_) == ConditionStatus::True
    }

    /// The first condition that is true: the one that `kubectl get` prints and metrics count.
    pub fn first_true(&self) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.status == ConditionStatus::True)
    }

    /// The conditions in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Condition> {
        self.0.iter()
    }

    /// Whether no condition was ever set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<Condition>> for ConditionList {
    fn from(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }
}

impl<'a> IntoIterator for &'a ConditionList {
    type Item = &'a Condition;
    type IntoIter = std::slice::Iter<'a, Condition>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Truncates a time to whole seconds, as JSON has it, so that an object in memory equals the one that is read back.
pub fn whole_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use ConditionStatus::{False, True, Unknown};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::new(1_700_000_000 + second, 987_654_321).unwrap()
    }

    fn seconds(time: Option<&Time>) -> i64 {
        time.unwrap().0.as_second() - 1_700_000_000
    }

    /// Every row of the set rule: what was there at second 0, what is set at second 60, and whether the transition
    /// time moves.
    #[test]
    fn set_rule() {
        type Row = (&'static str, (ConditionStatus, &'static str, &'static str), bool);
        let before = (False, "Waiting", "not yet");
        let rows: [Row; 6] = [
            ("nothing differs", (False, "Waiting", "not yet"), false),
            ("the message differs", (False, "Waiting", "still not"), false),
            ("the reason differs", (False, "Broken", "not yet"), false),
            ("reason and message differ", (False, "Broken", "no"), false),
            ("the status differs", (True, "Waiting", "not yet"), true),
            ("everything differs", (Unknown, "", ""), true),
        ];
        for (row, (status, reason, message), moved) in rows {
            let mut list = ConditionList::default();
            list.set("Available", before.0, before.1, before.2, at(0));
            list.set("Available", status, reason, message, at(60));
            assert_eq!(list.iter().len(), 1, "{row}: one condition per type");
            let condition = list.get("Available").unwrap();
            assert_eq!(
                (condition.status, &*condition.reason, &*condition.message),
                (status, reason, message),
                "{row}"
            );
            assert_eq!(
                seconds(condition.last_heartbeat_time.as_ref()),
                60,
                "{row}: the heartbeat always moves"
            );
            let transition = seconds(condition.last_transition_time.as_ref());
            assert_eq!(transition, if moved { 60 } else { 0 }, "{row}: time of transition");
        }
    }

    #[test]
    fn a_new_type_goes_to_the_end_with_both_times() {
        let mut list = ConditionList::default();
        for (second, type_) in [(0, "Progressing"), (1, "Failing"), (2, "Available")] {
            list.set(type_, Unknown, "", "", at(second));
        }
        list.set("Failing", True, "Retrying", "", at(3));
        let order: Vec<&str> = list.iter().map(|condition| &*condition.type_).collect();
        assert_eq!(order, ["Progressing", "Failing", "Available"], "setting again keeps the place");
        let available = list.get("Available").unwrap();
        assert_eq!(seconds(available.last_heartbeat_time.as_ref()), 2);
        assert_eq!(seconds(available.last_transition_time.as_ref()), 2);
    }

    #[test]
    fn the_first_true_condition_is_the_one_shown() {
        let mut list = ConditionList::default();
        assert_eq!(list.first_true(), None);
        list.set("Available", False, "Retrying", "", at(0));
        list.set("Failing", True, "Retrying", "", at(0));
        list.set("Progressing", True, "Retrying", "", at(0));
        assert_eq!(list.first_true().map(|condition| &*condition.type_), Some("Failing"));
        assert!(list.is_true("Progressing") && !list.is_true("Available") && !list.is_true("Aborted"));
        assert_eq!(list.status("Aborted"), Unknown);
    }

    #[test]
    fn times_have_whole_seconds_and_empty_texts_are_left_out() {
        let mut list = ConditionList::default();
        list.set("Available", True, "", "", Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_millis(1999));
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(
            json,
            serde_json::json!([{
                "type": "Available",
                "status": "True",
                "lastHeartbeatTime": "1970-01-01T00:00:01Z",
                "lastTransitionTime": "1970-01-01T00:00:01Z",
            }])
        );
        assert_eq!(
            serde_json::from_value::<ConditionList>(json).unwrap(),
            list,
            "what is read back is equal"
        );
    }

    #[test]
    fn conditions_of_others_are_read() {
        let json = serde_json::json!([
            { "type": "Available", "status": "Perhaps" },
            { "type": "Failing", "status": "True", "lastHeartbeatTime": null },
        ]);
        let list: ConditionList = serde_json::from_value(json).unwrap();
        assert_eq!(list.status("Available"), Unknown);
        assert!(list.is_true("Failing"));
    }

    #[test]
    fn a_condition_without_a_time_of_transition_gets_one() {
        let json = serde_json::json!([{ "type": "Available", "status": "True" }]);
        let mut list: ConditionList = serde_json::from_value(json).unwrap();
        list.set("Available", True, "", "", at(5));
        assert_eq!(seconds(list.get("Available").unwrap().last_transition_time.as_ref()), 5);
    }
}
