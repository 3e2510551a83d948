//! The rights of the operator, of `knmstate remove` and of `knmstate check`.
//!
//! The operator grants rights to its operands, and the API server refuses to grant rights that the client does not have
//! itself. Other operators get `escalate` and `bind` for that, which makes their token as powerful as an admin's. This one
//! has the rights of its operands, derived from their roles, and may write the objects that it creates: those with the
//! names that it uses, and in the namespace of its operands it may create and delete others of their kinds.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use knmstate_api::NMStateSpec;

use super::{rights::Rights, settings};
use crate::{
    Config, Object,
    cluster::ClusterInfo,
    kinds::{DEFINITION, KINDS, Kind, kind_of},
    operands,
    rights::{CORE, NMSTATE, READ, allow, allow_named},
};

const COORDINATION: &str = "coordination.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The namespace of the EndpointSlices of the API server.
const OF_API_SERVER: &str = "default";

/// Rights by their scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopedRights {
    pub cluster_wide: Rights,
    /// In the namespace of the operator.
    pub in_own_namespace: Rights,
    /// In the namespaces of the operands, by namespace.
    pub in_namespaces: BTreeMap<String, Rights>,
}

impl ScopedRights {
    fn in_namespace(&mut self, namespace: &str) -> &mut Rights {
        self.in_namespaces.entry(namespace.to_owned()).or_default()
    }
}

/// All objects that the operator may create with this configuration on any platform, with duplicates.
pub(crate) fn all_operands(config: &Config) -> Vec<Object> {
    let kinds = KINDS.iter().map(|kind| (kind.api_version.to_owned(), kind.kind.to_owned()));
    let with_all_kinds = ClusterInfo {
        openshift: true,
        kinds: kinds.collect(),
        cluster_reader: true,
        tls_profile: Some(String::new()),
        ..ClusterInfo::default()
    };
    let plain = ClusterInfo::default();
    // An empty NMState enables every optional object.
    let spec = NMStateSpec::default();
    let groups = [with_all_kinds, plain].map(|cluster| operands::operands(config, &spec, &cluster));
    groups.into_iter().flatten().flat_map(|group| group.objects).collect()
}

/// The rights of the operator.
pub fn operator_rights(config: &Config) -> ScopedRights {
    let mut rights = ScopedRights::default();
    let operands = all_operands(config);
    may_manage(&mut rights, config, &operands);
    for object in &operands {
        may_grant(&mut rights, object);
    }
    let settings = settings(config);
    let cluster_wide = [
        allow(NMSTATE, &["nmstates"], &["get", "list", "watch", "create", "patch", "delete"]),
        allow(NMSTATE, &["nmstates/status"], &["patch"]),
        // To count the nodes that can run a replica.
        allow(CORE, &["nodes"], &READ),
        openshift_config(),
        run_as_chosen_user(),
    ];
    rights.cluster_wide.add_all(&cluster_wide);
    let of_api_server = rights.in_namespace(OF_API_SERVER);
    of_api_server.add(&allow("discovery.k8s.io", &["endpointslices"], &READ));
    of_api_server.add(&allow_named(RBAC, &["roles", "rolebindings"], obsolete(config), &["delete"]));
    let of_operands = rights.in_namespace(&config.namespace);
    of_operands.add(&allow(CORE, &["pods"], &READ));
    of_operands.add_all(&leftovers(config));
    rights.in_own_namespace.add(&allow(COORDINATION, &["leases"], &["create"]));
    rights.in_own_namespace.add(&allow_named(
        COORDINATION,
        &["leases"],
        vec![settings.operator()],
        &["get", "list", "watch", "update", "patch"],
    ));
    rights
}

/// The rights of `knmstate remove`: to find and delete the objects of the operator, and first the operator itself, which
/// would create them again.
pub fn remover_rights(config: &Config) -> ScopedRights {
    let mut rights = ScopedRights::default();
    rights.cluster_wide.add(&allow(NMSTATE, &["nmstates"], &["get", "list", "watch", "patch", "delete"]));
    rights.cluster_wide.add(&openshift_config());
    rights.cluster_wide.add(&run_as_chosen_user());
    for kind in KINDS.iter().filter(|kind| **kind != DEFINITION) {
        may_find(&mut rights, config, kind);
        if kind.namespaced {
            rights.in_namespace(&config.namespace).add(&allow(kind.group(), &[kind.plural], &["delete"]));
        }
    }
    for (kind, object) in of_known_kinds(&all_operands(config)) {
        let by_name = allow_named(kind.group(), &[kind.plural], vec![object.name().to_owned()], &["delete"]);
        match object.namespace() {
            None if *kind != DEFINITION => rights.cluster_wide.add(&by_name),
            Some(namespace) if namespace != config.namespace => {
                rights.in_namespace(namespace).add(&by_name);
            }
            _ => {}
        }
    }
    let of_operands = rights.in_namespace(&config.namespace);
    of_operands.add(&allow(CORE, &["pods"], &READ));
    of_operands.add_all(&leftovers(config));
    let operator = vec![settings(config).operator()];
    rights.in_own_namespace.add(&allow_named("apps", &["deployments"], operator, &["get", "delete"]));
    rights
}

/// The rights of `knmstate check`, which only reads.
pub fn checker_rights(config: &Config) -> ScopedRights {
    let mut rights = ScopedRights::default();
    let cluster_wide =
        [allow(NMSTATE, &["nmstates", "nodenetworkstates"], &["get", "list"]), run_as_chosen_user()];
    rights.cluster_wide.add_all(&cluster_wide);
    let of_operands = rights.in_namespace(&config.namespace);
    of_operands.add(&allow("apps", &["daemonsets"], &["get"]));
    of_operands.add(&allow(CORE, &["pods"], &["list"]));
    rights
}

/// To find objects of a kind by label, in the namespace of the operands if all of them are there.
fn may_find(rights: &mut ScopedRights, config: &Config, kind: &Kind) {
    let read = allow(kind.group(), &[kind.plural], &READ);
    if kind.only_in_operand_namespace() {
        rights.in_namespace(&config.namespace).add(&read);
    } else {
        rights.cluster_wide.add(&read);
    }
}

/// To create, correct and remove objects of its kinds.
fn may_manage(rights: &mut ScopedRights, config: &Config, operands: &[Object]) {
    for kind in KINDS {
        may_find(rights, config, &kind);
        if kind.namespaced {
            // An earlier version may have created objects of other names, which this one removes.
            rights.in_namespace(&config.namespace).add(&allow(kind.group(), &[kind.plural], &["delete"]));
        }
    }
    for (kind, object) in of_known_kinds(operands) {
        let rights = match object.namespace() {
            None => &mut rights.cluster_wide,
            Some(namespace) => rights.in_namespace(namespace),
        };
        // Requests to create cannot be restricted by name.
        rights.add(&allow(kind.group(), &[kind.plural], &["create"]));
        // Updates replace an object, to remove what other clients have added to a guard or a role.
        // CustomResourceDefinitions are never deleted, because all policies would go with them.
        let verbs = if *kind == DEFINITION { &["patch"][..] } else { &["patch", "update", "delete"] };
        rights.add(&allow_named(kind.group(), &[kind.plural], vec![object.name().to_owned()], verbs));
    }
}

fn of_known_kinds(objects: &[Object]) -> impl Iterator<Item = (&'static Kind, &Object)> {
    objects.iter().filter_map(|object| Some((kind_of(object.api_version(), object.kind())?, object)))
}

/// To grant the rights of its operands.
fn may_grant(rights: &mut ScopedRights, object: &Object) {
    let (rights, rules) = match object {
        Object::ClusterRole(role) => (&mut rights.cluster_wide, &role.rules),
        Object::Role(role) => {
            let namespace = role.metadata.namespace.clone().unwrap_or_default();
            (rights.in_namespaces.entry(namespace).or_default(), &role.rules)
        }
        _ => return,
    };
    rights.add_all(rules.as_deref().unwrap_or_default());
}

/// Objects that the controllers create, to be removed after them.
fn leftovers(config: &Config) -> [PolicyRule; 2] {
    let settings = settings(config);
    [
        allow_named(
            CORE,
            &["secrets"],
            vec![settings.authority_secret(), settings.certificate_secret()],
            &["delete"],
        ),
        allow_named(COORDINATION, &["leases"], vec![settings.leader_lease()], &["delete"]),
    ]
}

/// Names of roles that kubernetes-nmstate has left there.
fn obsolete(config: &Config) -> Vec<String> {
    let name = "nmstate-handler-events";
    [name.to_owned(), settings(config).named(name)].into()
}

/// To read the platform and the TLS profile of OpenShift.
fn openshift_config() -> PolicyRule {
    let resources = ["infrastructures", "apiservers"];
    allow_named("config.openshift.io", &resources, vec!["cluster".to_owned()], &["get"])
}

/// OpenShift assigns a user to pods that may not choose one themselves. The image names none.
fn run_as_chosen_user() -> PolicyRule {
    let resources = ["securitycontextconstraints"];
    allow_named("security.openshift.io", &resources, vec!["nonroot-v2".to_owned()], &["use"])
}
