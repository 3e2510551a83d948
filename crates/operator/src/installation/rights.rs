//! What the operator may do, and what may be done for it in passing: removing everything, and looking whether all works.
//!
//! The operator grants rights to its operands, and the API server lets nobody grant what he does not have. The usual way
//! out is to let it `escalate` and `bind`, which makes its token as good as an admin's. Here it has what its operands
//! have, derived from their roles, and may write objects of the kinds that it makes: anywhere in the namespace of its
//! operands, elsewhere only those of the names that it makes.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use knmstate_api::NMStateSpec;

use super::{rules::Rights, settings};
use crate::{
    Config, Object,
    catalogue::{DEFINITION, KINDS, Kind, kind_of},
    facts::Facts,
    operands,
    rights::{CORE, NMSTATE, READ, allow, allow_named},
};

const COORDINATION: &str = "coordination.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Where the addresses of the API server are told, under the name of its Service.
const OF_API_SERVER: &str = "default";

/// Rights, by where they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub everywhere: Rights,
    /// In the namespace of the operator.
    pub at_home: Rights,
    /// In the namespaces of what it makes.
    pub in_namespaces: BTreeMap<String, Rights>,
}

impl Holdings {
    fn in_namespace(&mut self, namespace: &str) -> &mut Rights {
        self.in_namespaces.entry(namespace.to_owned()).or_default()
    }
}

/// Whatever the operator may ever make with this configuration, on any platform. Some of it is there twice.
pub fn all_operands(config: &Config) -> Vec<Object> {
    let kinds = KINDS.iter().map(|kind| (kind.api_version.to_owned(), kind.kind.to_owned()));
    let rich = Facts { openshift: true, kinds: kinds.collect(), cluster_reader: true, ..Facts::default() };
    let poor = Facts::default();
    // An NMState that says nothing switches on everything that can be switched off.
    let spec = NMStateSpec::default();
    let groups = [rich, poor].map(|facts| operands::operands(config, &spec, &facts));
    groups.into_iter().flatten().flat_map(|group| group.objects).collect()
}

/// Those of the operator.
pub fn of_operator(config: &Config) -> Holdings {
    let mut holdings = Holdings::default();
    let operands = all_operands(config);
    makes(&mut holdings, config, &operands);
    for object in &operands {
        grants(&mut holdings, object);
    }
    let settings = settings(config);
    let everywhere = [
        allow(NMSTATE, &["nmstates"], &["get", "list", "watch", "create", "patch", "delete"]),
        allow(NMSTATE, &["nmstates/status"], &["patch"]),
        // How many replicas there is room for.
        allow(CORE, &["nodes"], &READ),
        surroundings(),
        run_as_chosen_user(),
    ];
    holdings.everywhere.add_all(&everywhere);
    let of_api_server = holdings.in_namespace(OF_API_SERVER);
    of_api_server.add(&allow("discovery.k8s.io", &["endpointslices"], &READ));
    of_api_server.add(&allow_named(RBAC, &["roles", "rolebindings"], obsolete(config), &["delete"]));
    let of_operands = holdings.in_namespace(&config.namespace);
    of_operands.add(&allow(CORE, &["pods"], &READ));
    of_operands.add_all(&leftovers(config));
    holdings.at_home.add(&allow(COORDINATION, &["leases"], &["create"]));
    holdings.at_home.add(&allow_named(
        COORDINATION,
        &["leases"],
        vec![settings.operator()],
        &["get", "list", "watch", "update", "patch"],
    ));
    holdings
}

/// Those of `knmstate remove`: to find and to delete what the operator makes, and first the operator, which would make it
/// again.
pub fn of_remover(config: &Config) -> Holdings {
    let mut holdings = Holdings::default();
    holdings.everywhere.add(&allow(NMSTATE, &["nmstates"], &["get", "list", "watch", "patch", "delete"]));
    holdings.everywhere.add(&surroundings());
    holdings.everywhere.add(&run_as_chosen_user());
    for kind in KINDS.iter().filter(|kind| **kind != DEFINITION) {
        seen(&mut holdings, config, kind);
        if kind.namespaced {
            holdings.in_namespace(&config.namespace).add(&allow(kind.group(), &[kind.plural], &["delete"]));
        }
    }
    for (kind, object) in of_known_kinds(&all_operands(config)) {
        let by_name = allow_named(kind.group(), &[kind.plural], vec![object.name().to_owned()], &["delete"]);
        match object.namespace() {
            None if *kind != DEFINITION => holdings.everywhere.add(&by_name),
            Some(namespace) if namespace != config.namespace => {
                holdings.in_namespace(namespace).add(&by_name);
            }
            _ => {}
        }
    }
    let of_operands = holdings.in_namespace(&config.namespace);
    of_operands.add(&allow(CORE, &["pods"], &READ));
    of_operands.add_all(&leftovers(config));
    let operator = vec![settings(config).operator()];
    holdings.at_home.add(&allow_named("apps", &["deployments"], operator, &["get", "delete"]));
    holdings
}

/// Those of `knmstate check`: it reads.
pub fn of_checker(config: &Config) -> Holdings {
    let mut holdings = Holdings::default();
    let everywhere =
        [allow(NMSTATE, &["nmstates", "nodenetworkstates"], &["get", "list"]), run_as_chosen_user()];
    holdings.everywhere.add_all(&everywhere);
    let of_operands = holdings.in_namespace(&config.namespace);
    of_operands.add(&allow("apps", &["daemonsets"], &["get"]));
    of_operands.add(&allow(CORE, &["pods"], &["list"]));
    holdings
}

/// To find objects of a kind by label, no further than they can be.
fn seen(holdings: &mut Holdings, config: &Config, kind: &Kind) {
    let read = allow(kind.group(), &[kind.plural], &READ);
    if kind.at_home() {
        holdings.in_namespace(&config.namespace).add(&read);
    } else {
        holdings.everywhere.add(&read);
    }
}

/// To make objects of its kinds, to keep them as they should be, and to remove them.
fn makes(holdings: &mut Holdings, config: &Config, operands: &[Object]) {
    // To update is to replace: what others have added to a guard or a right has to go.
    let write = ["create", "patch", "update", "delete"];
    for kind in KINDS {
        seen(holdings, config, &kind);
        if kind.namespaced {
            holdings.in_namespace(&config.namespace).add(&allow(kind.group(), &[kind.plural], &write));
        }
    }
    for (kind, object) in of_known_kinds(operands) {
        let rights = match object.namespace() {
            None => &mut holdings.everywhere,
            Some(namespace) if namespace == config.namespace => continue,
            Some(namespace) => holdings.in_namespace(namespace),
        };
        // Whoever decides about rights is not told the name of what is yet to be made.
        rights.add(&allow(kind.group(), &[kind.plural], &["create"]));
        // Definitions stay, and with them everything that users have written.
        let verbs = if *kind == DEFINITION { &["patch"][..] } else { &["patch", "update", "delete"] };
        rights.add(&allow_named(kind.group(), &[kind.plural], vec![object.name().to_owned()], verbs));
    }
}

fn of_known_kinds(objects: &[Object]) -> impl Iterator<Item = (&'static Kind, &Object)> {
    objects.iter().filter_map(|object| Some((kind_of(object.api_version(), object.kind())?, object)))
}

/// To grant its operands what they may do.
fn grants(holdings: &mut Holdings, object: &Object) {
    let (rights, rules) = match object {
        Object::ClusterRole(role) => (&mut holdings.everywhere, &role.rules),
        Object::Role(role) => {
            let namespace = role.metadata.namespace.clone().unwrap_or_default();
            (holdings.in_namespaces.entry(namespace).or_default(), &role.rules)
        }
        _ => return,
    };
    rights.add_all(rules.as_deref().unwrap_or_default());
}

/// What controllers make for themselves, to be removed after them.
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

/// What kubernetes-nmstate has left there.
fn obsolete(config: &Config) -> Vec<String> {
    let name = "nmstate-handler-events";
    [name.to_owned(), settings(config).named(name)].into()
}

/// OpenShift: what the cluster runs on, and what TLS is to be like.
fn surroundings() -> PolicyRule {
    let resources = ["infrastructures", "apiservers"];
    allow_named("config.openshift.io", &resources, vec!["cluster".to_owned()], &["get"])
}

/// OpenShift gives pods a user of its own choice, unless they may choose one that is not root. The image names none.
fn run_as_chosen_user() -> PolicyRule {
    let resources = ["securitycontextconstraints"];
    allow_named("security.openshift.io", &resources, vec!["nonroot-v2".to_owned()], &["use"])
}
