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
