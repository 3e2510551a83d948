//! A table of conditions: setting all of them at once, and asking whether they are set.

use jiff::Timestamp;
use knmstate_api::{ConditionList, ConditionStatus};

/// Type, status, reason and message of one condition.
pub type Row = (&'static str, ConditionStatus, &'static str, String);

pub fn set(conditions: &mut ConditionList, rows: impl IntoIterator<Item = Row>, now: Timestamp) {
    for (type_, status, reason, message) in rows {
        conditions.set(type_, status, reason, &message, now);
    }
}

/// Whether the conditions say this already, whenever they began to.
pub fn are_set(conditions: &ConditionList, rows: impl IntoIterator<Item = Row>) -> bool {
    rows.into_iter().all(|(type_, status, reason, message)| {
        conditions
            .get(type_)
            .is_some_and(|known| (known.status, &*known.reason, &known.message) == (status, reason, &message))
    })
}
