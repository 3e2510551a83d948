//! Everything that an NMState stands for, as objects.

use knmstate_api::{NMStateSpec, crds, names::relationship};

use crate::{
    Config, Group, Object, Settings, disruption, facts::Facts, groups, monitor, network_policies, readers,
    rights::allow_named, services, workloads,
};

/// What operands are made from.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub config: &'a Config,
    /// The names that follow from the configuration.
    pub settings: &'a Settings,
    pub spec: &'a NMStateSpec,
    pub facts: &'a Facts,
}

/// Everything that an NMState stands for, in the order to apply it in: the definitions of the kinds, then the guards
/// before the rights that they narrow, then whatever uses the rights.
pub fn operands(config: &Config, spec: &NMStateSpec, facts: &Facts) -> Vec<Group> {
    let settings = config.settings(spec.allow_node_state_configuration);
    let wish = Wish { config, settings: &settings, spec, facts };
    let group = |name, objects| Group { name, objects };
    let definitions = crds::all().map(Object::from).into();
    let mut all = vec![group("definitions", definitions)];
    all.extend(groups(&settings));
    all.extend([
        group("readers", readers::readers(&wish)),
        group("network-policies", network_policies::network_policies(&wish)),
        group("services", services::services(&wish)),
        group("monitor", monitor::monitor(&wish)),
        group("controller", workloads::controller::controller(&wish)),
        group("disruption", disruption::disruption(&wish)),
        group("handler", workloads::handler::handler(&wish)),
    ]);
    all.retain(|group| !group.objects.is_empty());
    for object in all.iter_mut().flat_map(|group| &mut group.objects) {
        complete(object, &wish);
    }
    all
}

/// The label by which the operator knows what it has made.
pub fn managed_by(settings: &Settings) -> (String, String) {
    (relationship::MANAGED_BY.to_owned(), settings.operator())
}

fn complete(object: &mut Object, wish: &Wish<'_>) {
    let (key, value) = managed_by(wish.settings);
    if let Object::ClusterRole(role) = object
        && wish.facts.openshift
        && role.metadata.name.as_deref() == Some(&wish.settings.handler_account())
    {
        // Of what OpenShift has, the only one that lets a pod have the network of its machine and SELinux' free type.
        let constraints = ["securitycontextconstraints"];
        let privileged = vec!["privileged".to_owned()];
        let right = allow_named("security.openshift.io", &constraints, privileged, &["use"]);
        role.rules.get_or_insert_default().push(right);
    }
    if let Object::Namespace(namespace) = object {
        if wish.facts.own_namespace {
            let annotations = namespace.metadata.annotations.get_or_insert_default();
            annotations.insert(MADE_HERE.to_owned(), "true".to_owned());
        }
        if wish.facts.openshift {
            let annotations = namespace.metadata.annotations.get_or_insert_default();
            annotations.insert("openshift.io/node-selector".to_owned(), String::new());
            let labels = namespace.metadata.labels.get_or_insert_default();
            labels.insert("openshift.io/cluster-monitoring".to_owned(), "true".to_owned());
        }
    }
    object.metadata_mut().labels.get_or_insert_default().insert(key, value);
}

/// On a namespace that the operator has made, and so may remove.
pub const MADE_HERE: &str = "nmstate.io/made-by-operator";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::{catalogue::kind_of, facts::NodeFacts, installation};

    fn on_nodes(count: usize) -> Facts {
        let linux = NodeFacts {
            labels: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            taints: Vec::new(),
        };
        Facts {
            nodes: (0..count).map(|number| (format!("node{number}"), linux.clone())).collect(),
            ..Facts::default()
        }
    }

    fn find(facts: &Facts, kind: &str, name: &str) -> Value {
        let groups = operands(&installation::usual("image"), &NMStateSpec::default(), facts);
        let mut objects = groups.into_iter().flat_map(|group| group.objects);
        let found = objects.find(|object| object.kind() == kind && object.name() == name);
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn a_cluster_of_one_node_gets_one_of_everything() {
        for (count, replicas, spread, spared) in
            [(0, 1, false, 0), (1, 1, false, 0), (2, 2, true, 1), (9, 2, true, 1)]
        {
            let facts = on_nodes(count);
            let controller = find(&facts, "Deployment", "nmstate-webhook");
            assert_eq!(controller["spec"]["replicas"], json!(replicas), "{count} nodes");
            let constraints = &controller["spec"]["template"]["spec"]["topologySpreadConstraints"];
            assert_eq!(constraints.is_array(), spread, "{count} nodes");
            let budget = find(&facts, "PodDisruptionBudget", "nmstate-webhook");
            assert_eq!(budget["spec"]["minAvailable"], json!(spared), "{count} nodes");
        }
    }

    #[test]
    fn every_object_is_of_a_known_kind_is_there_once_and_can_be_found_again() {
        let config = crate::Config { prefix: Some("x".to_owned()), ..installation::usual("image") };
        let all = installation::all_operands(&config);
        let mut seen = BTreeSet::new();
        for object in &all {
            assert!(kind_of(object.api_version(), object.kind()).is_some(), "{}", object.kind());
            let written = serde_json::to_value(object).unwrap();
            let label = &written["metadata"]["labels"]["app.kubernetes.io/managed-by"];
            assert_eq!(label, "x-nmstate-operator", "{written}");
            seen.insert((object.kind(), object.namespace().map(str::to_owned), object.name().to_owned()));
            if !["CustomResourceDefinition", "Namespace"].contains(&object.kind()) {
                assert!(object.name().starts_with("x-"), "{} {}", object.kind(), object.name());
            }
        }
        assert!(seen.len() > 40, "{}", seen.len());
    }
}
