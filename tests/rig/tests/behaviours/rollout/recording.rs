//! The checks of a rollout, on a recording of its enactments.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, Permit,
    reasons::enactment::{AVAILABLE, FAILING, PROGRESSING},
};
use kube::ResourceExt as _;

/// A list, or an event of a watch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// All enactments that exist.
    All(Vec<Enactment>),
    Present(Box<Enactment>),
    Deleted(Box<Enactment>),
}

/// Lists and events, in order.
#[derive(Clone, Debug, Default)]
pub struct RolloutRecording {
    pub entries: Vec<Entry>,
    /// How often the server no longer had the next event. What happened between the lists before and after it is
    /// not known.
    pub gaps: usize,
}

/// All enactments at one moment, by name.
type EnactmentsByName = BTreeMap<String, Enactment>;

impl RolloutRecording {
    /// The enactments at the end.
    pub fn last(&self) -> EnactmentsByName {
        self.moments(|_| {})
    }

    /// The same for one policy alone.
    pub fn of(&self, policy: &str) -> Self {
        self.only(|one| one.spec.as_ref().is_some_and(|spec| spec.policy_name == policy))
    }

    /// The same without a node.
    pub fn without(&self, node: &str) -> Self {
        self.only(|one| one.spec.as_ref().is_none_or(|spec| spec.node_name != node))
    }

    fn only(&self, is_of: impl Fn(&Enactment) -> bool) -> Self {
        let entries = self.entries.iter().filter_map(|entry| match entry {
            Entry::All(all) => Some(Entry::All(all.iter().filter(|one| is_of(one)).cloned().collect())),
            Entry::Present(one) | Entry::Deleted(one) => is_of(one).then(|| entry.clone()),
        });
        Self { entries: entries.collect(), gaps: self.gaps }
    }

    /// The nodes in the order in which they were first done with a generation.
    pub fn done_in_order(&self, generation: i64) -> Vec<String> {
        let mut order = Vec::new();
        self.moments(|moment| {
            for one in moment.values().filter(|one| is_done(one, generation)) {
                let Some(node) = one.spec.as_ref().map(|spec| &spec.node_name) else { continue };
                if !order.contains(node) {
                    order.push(node.clone());
                }
            }
        });
        order
    }

    /// The largest number of nodes in progress at once: with a permit, and neither done nor failed for good.
    pub fn max_in_progress(&self) -> usize {
        let mut most = 0;
        self.moments(|moment| most = most.max(moment.values().filter(|one| is_in_progress(one)).count()));
        most
    }

    /// Within a generation of a policy, a permit to apply and an abort are final.
    pub fn no_permit_was_revoked(&self) -> Result<()> {
        let mut permits: BTreeMap<(String, Option<String>, i64), Permit> = BTreeMap::new();
        let mut revoked = Vec::new();
        self.moments(|moment| {
            for (name, one) in moment {
                let Some(spec) = &one.spec else { continue };
                let key = (name.clone(), spec.policy_uid.clone(), spec.policy_generation);
                match permits.insert(key, spec.permit) {
                    Some(before @ (Permit::Apply | Permit::Abort)) if before != spec.permit => {
                        revoked.push(format!("{name}: {before:?} became {:?}", spec.permit));
                    }
                    _ => {}
                }
            }
        });
        ensure!(revoked.is_empty(), "{revoked:?}");
        Ok(())
    }

    /// No enactment was deleted, and none was created a second time.
    pub fn each_was_created_once(&self) -> Result<()> {
        let mut uids_by_name: BTreeMap<String, BTreeSet<Option<String>>> = BTreeMap::new();
        let mut lost = BTreeSet::new();
        self.moments(|moment| {
            for (name, one) in moment {
                uids_by_name.entry(name.clone()).or_default().insert(one.uid());
            }
            lost.extend(uids_by_name.keys().filter(|name| !moment.contains_key(*name)).cloned());
        });
        let doubled: Vec<_> = uids_by_name.iter().filter(|(_, uids)| uids.len() > 1).collect();
        ensure!(doubled.is_empty() && lost.is_empty(), "created again: {doubled:?}; deleted: {lost:?}");
        Ok(())
    }

    /// Nodes that were ever permitted to apply this generation.
    pub fn permitted(&self, generation: i64) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        self.moments(|moment| {
            let specs = moment.values().filter_map(|one| one.spec.as_ref());
            let permitted =
                specs.filter(|spec| spec.policy_generation == generation && spec.permit == Permit::Apply);
            nodes.extend(permitted.map(|spec| spec.node_name.clone()));
        });
        nodes
    }

    /// Calls `see` with every moment that was recorded, and returns the last one.
    fn moments(&self, mut see: impl FnMut(&EnactmentsByName)) -> EnactmentsByName {
        let mut moment = EnactmentsByName::new();
        for entry in &self.entries {
            match entry {
                Entry::All(all) => moment = all.iter().map(|one| (one.name_any(), one.clone())).collect(),
                Entry::Present(one) => {
                    moment.insert(one.name_any(), (**one).clone());
                }
                Entry::Deleted(one) => {
                    moment.remove(&one.name_any());
                }
            }
            see(&moment);
        }
        moment
    }
}

/// Whether a node has applied this generation.
pub fn is_done(one: &Enactment, generation: i64) -> bool {
    is_of_current_order(one)
        && one.status.policy_generation == generation
        && one.status.conditions.is_true(AVAILABLE)
}

pub fn is_in_progress(one: &Enactment) -> bool {
    let conditions = &one.status.conditions;
    let is_over =
        conditions.is_true(AVAILABLE) || (conditions.is_true(FAILING) && !conditions.is_true(PROGRESSING));
    one.spec.as_ref().is_some_and(|spec| spec.permit == Permit::Apply)
        && !(is_over && is_of_current_order(one))
}

fn is_of_current_order(one: &Enactment) -> bool {
    one.spec.as_ref().is_some_and(|spec| {
        (one.status.policy_generation, &one.status.policy_uid) == (spec.policy_generation, &spec.policy_uid)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn enactment(node: &str, uid: &str, generation: i64, permit: &str, reported: (i64, &str)) -> Enactment {
        serde_json::from_value(json!({
            "metadata": {"name": format!("{node}.p"), "uid": uid},
            "spec": {"nodeName": node, "policyName": "p", "policyUID": "u", "policyGeneration": generation,
                "permit": permit},
            "status": {"policyUID": "u", "policyGeneration": reported.0, "conditions": [
                {"type": reported.1, "status": "True"}]},
        }))
        .unwrap()
    }

    fn recording(entries: impl IntoIterator<Item = Enactment>) -> RolloutRecording {
        let entries = entries.into_iter().map(|one| Entry::Present(Box::new(one)));
        RolloutRecording { entries: entries.collect(), gaps: 0 }
    }

    #[test]
    fn nodes_in_progress_are_permitted_and_not_done_with_their_order() {
        for (generation, permit, reported, expected) in [
            (2, "Wait", (2, "Pending"), 0),
            (2, "Abort", (2, "Aborted"), 0),
            (2, "Apply", (2, "Pending"), 1),
            (2, "Apply", (2, "Progressing"), 1),
            (2, "Apply", (1, "Available"), 1),
            (2, "Apply", (2, "Available"), 0),
            (2, "Apply", (2, "Failing"), 0),
        ] {
            let one = recording([enactment("n", "1", generation, permit, reported)]);
            assert_eq!(one.max_in_progress(), expected, "{permit} {reported:?}");
        }
        let two = ["a", "b"].map(|node| enactment(node, node, 1, "Apply", (1, "Progressing")));
        let done = enactment("a", "a", 1, "Apply", (1, "Available"));
        assert_eq!(recording(two.clone().into_iter().chain([done.clone()])).max_in_progress(), 2);
        assert_eq!(recording([two[0].clone(), done, two[1].clone()]).max_in_progress(), 1);
    }

    #[test]
    fn revoked_permits_are_found() {
        for (before, after, holds) in [
            ((1, "Wait"), (1, "Apply"), true),
            ((1, "Wait"), (1, "Abort"), true),
            ((1, "Apply"), (2, "Wait"), true),
            ((1, "Apply"), (1, "Wait"), false),
            ((1, "Abort"), (1, "Apply"), false),
        ] {
            let recording = recording(
                [before, after]
                    .map(|(generation, permit)| enactment("n", "1", generation, permit, (1, "Pending"))),
            );
            assert_eq!(recording.no_permit_was_revoked().is_ok(), holds, "{before:?} {after:?}");
        }
    }

    #[test]
    fn deleted_and_recreated_enactments_are_found() {
        let made = |uid| enactment("n", uid, 1, "Wait", (1, "Pending"));
        assert!(recording([made("1"), made("1")]).each_was_created_once().is_ok());
        assert!(recording([made("1"), made("2")]).each_was_created_once().is_err());
        let mut gone = recording([made("1")]);
        gone.entries.push(Entry::Deleted(Box::new(made("1"))));
        assert!(gone.each_was_created_once().is_err());
        let mut missed = recording([made("1")]);
        missed.entries.push(Entry::All(Vec::new()));
        assert!(missed.each_was_created_once().is_err());
    }
}
