//! All objects that the operator creates for an NMState.

use knmstate_api::{NMStateSpec, crds, names::relationship};

use crate::{
    Config, Group, Object, Settings, ca_bundle, cluster::ClusterInfo, disruption, groups, monitor,
    network_policies, readers, rights::allow_named, services, workloads,
};

/// What the operands are computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandInputs<'a> {
    pub config: &'a Config,
    /// The names of objects that follow from the configuration.
    pub settings: &'a Settings,
    pub spec: &'a NMStateSpec,
    pub cluster: &'a ClusterInfo,
}

/// All operands of an NMState, in the order to apply them in: the CustomResourceDefinitions, then the guards before the
/// rights that they narrow, then the workloads that use the rights.
pub(crate) fn operands(config: &Config, spec: &NMStateSpec, cluster: &ClusterInfo) -> Vec<Group> {
    let settings = Settings {
        allow_dispatch_scripts: spec.allow_dispatch_scripts,
        ..config.settings(spec.allow_node_state_configuration)
    };
    let inputs = OperandInputs { config, settings: &settings, spec, cluster };
    let group = |name, objects| Group { name, objects };
    let definitions = crds::all().map(Object::from).into();
    let mut all = vec![group("definitions", definitions)];
    all.extend(groups(&settings));
    all.extend([
        group("readers", readers::readers(&inputs)),
        group("network-policies", network_policies::network_policies(&inputs)),
        group("services", services::services(&inputs)),
        group("monitor", monitor::monitor(&inputs)),
        group("controller", workloads::controller::controller(&inputs)),
        group("disruption", disruption::disruption(&inputs)),
        group("handler", workloads::handler::handler(&inputs)),
    ]);
    all.retain(|group| !group.objects.is_empty());
    for object in all.iter_mut().flat_map(|group| &mut group.objects) {
        complete(object, &inputs);
    }
    all
}

/// The label by which the operator finds the objects that it has created.
pub(crate) fn managed_by(settings: &Settings) -> (String, String) {
    (relationship::MANAGED_BY.to_owned(), settings.operator())
}

fn complete(object: &mut Object, inputs: &OperandInputs<'_>) {
    let (key, value) = managed_by(inputs.settings);
    if let Object::ClusterRole(role) = object
        && inputs.cluster.openshift
        && role.metadata.name.as_deref() == Some(&inputs.settings.handler_account())
    {
        // The only SecurityContextConstraints of OpenShift that allow the host network and the SELinux type spc_t.
        let constraints = ["securitycontextconstraints"];
        let privileged = vec!["privileged".to_owned()];
        let right = allow_named("security.openshift.io", &constraints, privileged, &["use"]);
        role.rules.get_or_insert_default().push(right);
    }
    if let Object::Namespace(namespace) = object {
        if inputs.cluster.own_namespace {
            let annotations = namespace.metadata.annotations.get_or_insert_default();
            annotations.insert(CREATED_BY_OPERATOR.to_owned(), "true".to_owned());
        }
        if inputs.cluster.openshift {
            let annotations = namespace.metadata.annotations.get_or_insert_default();
            annotations.insert("openshift.io/node-selector".to_owned(), String::new());
            let labels = namespace.metadata.labels.get_or_insert_default();
            labels.insert("openshift.io/cluster-monitoring".to_owned(), "true".to_owned());
        }
    }
    // On OpenShift, service-ca sets it.
    if let Some(bundle) = inputs.cluster.ca_bundle.as_ref().filter(|_| !inputs.cluster.openshift) {
        ca_bundle::inject(object, bundle);
    }
    object.metadata_mut().labels.get_or_insert_default().insert(key, value);
}

/// The annotation of a namespace that the operator has created, and so may remove.
pub(crate) const CREATED_BY_OPERATOR: &str = "nmstate.io/made-by-operator";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::{cluster::NodeInfo, installation, kinds::kind_of};

    fn on_nodes(count: usize) -> ClusterInfo {
        let linux = NodeInfo {
            labels: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            taints: Vec::new(),
        };
        ClusterInfo {
            nodes: (0..count).map(|number| (format!("node{number}"), linux.clone())).collect(),
            ..ClusterInfo::default()
        }
    }

    fn find(cluster: &ClusterInfo, kind: &str, name: &str) -> Value {
        let groups = operands(&installation::default_config("image"), &NMStateSpec::default(), cluster);
        let mut objects = groups.into_iter().flat_map(|group| group.objects);
        let found = objects.find(|object| object.kind() == kind && object.name() == name);
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn a_cluster_of_one_node_gets_one_replica() {
        for (count, replicas, spread, spared) in
            [(0, 1, false, 0), (1, 1, false, 0), (2, 2, true, 1), (9, 2, true, 1)]
        {
            let cluster = on_nodes(count);
            let controller = find(&cluster, "Deployment", "nmstate-webhook");
            assert_eq!(controller["spec"]["replicas"], json!(replicas), "{count} nodes");
            let constraints = &controller["spec"]["template"]["spec"]["topologySpreadConstraints"];
            assert_eq!(constraints.is_array(), spread, "{count} nodes");
            let budget = find(&cluster, "PodDisruptionBudget", "nmstate-webhook");
            assert_eq!(budget["spec"]["minAvailable"], json!(spared), "{count} nodes");
        }
    }

    #[test]
    fn every_object_is_of_a_known_kind_is_unique_and_has_the_label() {
        let config = crate::Config { prefix: Some("x".to_owned()), ..installation::default_config("image") };
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
