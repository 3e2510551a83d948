//! The results of the last checks of large specs. Admission and the leader share them, so a large policy is checked
//! once, however often it is written again and whatever else changes in the cluster.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

use knmstate_api::NodeNetworkConfigurationPolicySpec;

use crate::refusal::{Refusal, refusal_of_spec};

/// A smaller spec is checked faster than it is looked up.
const LARGE: usize = 16 * 1024;
/// How many results are kept.
const MAX_KNOWN: usize = 64;

/// What identifies a spec: the length of its JSON, and two hashes of it with random keys.
type Fingerprint = (usize, [u64; 2]);

/// The results that are known. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownChecks(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    keys: [RandomState; 2],
    /// The latest one last.
    results: Mutex<VecDeque<(Fingerprint, Option<Refusal>)>>,
}

impl KnownChecks {
    /// The result of the checks that need only the spec.
    pub(crate) fn refusal_of_spec(&self, spec: &NodeNetworkConfigurationPolicySpec) -> Option<Refusal> {
        self.look_up(spec, refusal_of_spec)
    }

    fn look_up(
        &self,
        spec: &NodeNetworkConfigurationPolicySpec,
        check: impl FnOnce(&NodeNetworkConfigurationPolicySpec) -> Option<Refusal>,
    ) -> Option<Refusal> {
        let json = serde_json::to_vec(spec).unwrap_or_default();
        if json.len() < LARGE {
            return check(spec);
        }
        let fingerprint = (json.len(), [0, 1].map(|key: usize| self.0.keys[key].hash_one(&json)));
        drop(json);
        let results = || self.0.results.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            results().iter().find(|(known, _)| *known == fingerprint).map(|(_, result)| result.clone());
        if let Some(known) = known {
            return known;
        }
        let result = check(spec);
        let mut results = results();
        if results.len() >= MAX_KNOWN {
            results.pop_front();
        }
        results.push_back((fingerprint, result.clone()));
        result
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(description: &str) -> NodeNetworkConfigurationPolicySpec {
        let spec: Value = json!({ "desiredState": { "description": description } });
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn a_large_spec_is_checked_once() {
        let known = KnownChecks::default();
        let large = |letter: &str| spec(&letter.repeat(LARGE));
        let refusal = |why: &str| Some(Refusal::Invalid(why.to_owned()));
        assert_eq!(known.look_up(&large("a"), |_| refusal("first")), refusal("first"));
        assert_eq!(known.clone().look_up(&large("a"), |_| refusal("second")), refusal("first"));
        assert_eq!(known.look_up(&large("b"), |_| None), None, "another one");
        assert_eq!(known.look_up(&large("b"), |_| refusal("second")), None, "that it passes is known, too");
        for letter in 0..MAX_KNOWN {
            known.look_up(&large(&format!("{letter} ")), |_| None);
        }
        assert_eq!(
            known.look_up(&large("a"), |_| refusal("again")),
            refusal("again"),
            "the oldest is dropped"
        );
        assert_eq!(known.look_up(&spec("small"), |_| refusal("first")), refusal("first"));
        assert_eq!(known.look_up(&spec("small"), |_| refusal("second")), refusal("second"));
    }
}
