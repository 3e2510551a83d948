//! The MachineConfigPools of OpenShift, for the policies that are rolled out through them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use k8s_openapi::{
    ClusterResourceScope,
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use knmstate_api::rollout::Through;
use knmstate_client::watch::Seen;
use knmstate_core::{
    pools::{Member, Pool, Pools},
    rollout::enactment_facts,
};
use kube::{Resource, ResourceExt as _, core::DeserializeGuard};
use serde::Deserialize;

use super::{Enactment, Handler, Node, Origin, Policy, World};

/// The API that pools are read by.
pub const POOLS_API: &str = "machineconfiguration.openshift.io/v1";
pub const POOL_KIND: &str = "MachineConfigPool";
/// How far the machine-config operator is with a node; `Done` when it leaves it alone.
pub(super) const STATE_ANNOTATION: &str = "machineconfiguration.openshift.io/state";

/// A pool, without what the machine-config operator keeps in it.
#[derive(Clone, Debug, Deserialize)]
pub struct SlimPool {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: PoolSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    #[serde(default)]
    node_selector: Option<LabelSelector>,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    max_unavailable: Option<IntOrString>,
}

impl Resource for SlimPool {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        POOL_KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "machineconfiguration.openshift.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "machineconfigpools".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What is known of the pools. They are read only when a policy asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known {
    #[default]
    Nothing,
    /// This cluster has no such kind.
    NoSuchKind,
    Pools(BTreeMap<String, Pool>),
}

/// Whether a policy is to be rolled out through pools.
pub fn asks_for_pools(policy: &Policy) -> bool {
    let rollout = policy.spec.rollout.as_ref();
    rollout.and_then(|rollout| rollout.through) == Some(Through::MachineConfigPool)
}

impl World {
    /// What is known of the pools.
    pub fn pools(&self) -> &Known {
        &self.pools
    }

    /// Whether any policy is to be rolled out through pools.
    pub fn needs_pools(&self) -> bool {
        self.policies.values().any(asks_for_pools)
    }

    pub fn see_pools(&mut self, seen: Seen<SlimPool>) {
        let mut pools = match &self.pools {
            Known::Pools(pools) => pools.clone(),
            Known::Nothing | Known::NoSuchKind => BTreeMap::new(),
        };
        match seen {
            Seen::All(all) => {
                let mut before = std::mem::take(&mut pools);
                for object in all {
                    let name = object.name_any();
                    // One that cannot be read goes on as it was.
                    if let Some(pool) = read_pool(object).or_else(|| before.remove(&name)) {
                        pools.insert(name, pool);
                    }
                }
            }
            Seen::Changed(object) => {
                let name = object.name_any();
                pools.extend(read_pool(object).map(|pool| (name, pool)));
            }
            Seen::Gone(object) => {
                pools.remove(&object.name_any());
            }
        }
        self.set_pools(Known::Pools(pools));
    }

    /// What is known of pools has become this.
    pub fn set_pools(&mut self, known: Known) {
        if self.pools != known {
            self.pools = known;
            self.concerned.extend(self.through_pools());
        }
    }

    /// The policies that are rolled out through pools. Each one's nodes are missing to the others.
    pub(super) fn through_pools(&self) -> Vec<Origin> {
        let asking = self.policies.iter().filter(|(_, policy)| asks_for_pools(policy));
        asking.map(|(name, _)| Origin::Policy(name.clone())).collect()
    }

    /// The pools with their nodes, as a policy finds them.
    pub fn pools_for(&self, pools: &BTreeMap<String, Pool>, origin: &Origin, now: Timestamp) -> Pools {
        let handlers = self.handlers(now);
        let runs = |node: &str| matches!(handlers.get(node), Some(Handler::Runs));
        let at_work: BTreeSet<&String> = self
            .enactments
            .iter()
            .filter(|(policy, node, one)| {
                Origin::of(policy, node) != *origin && runs(node) && is_at_work(one)
            })
            .map(|(_, node, _)| node)
            .collect();
        let members = self.nodes.iter().map(|(name, node)| Member {
            name,
            labels: &node.labels,
            created: node.created,
            is_unavailable: is_unavailable(node) || at_work.contains(name),
        });
        Pools::new(pools, members)
    }
}

/// Whether workloads cannot count on a node, or its pool is updating it.
fn is_unavailable(node: &Node) -> bool {
    !node.is_ready || node.is_unschedulable || !node.is_updated
}

/// Whether the node may work on an order that it has not finished.
fn is_at_work(enactment: &Enactment) -> bool {
    enactment.order().is_some_and(|order| {
        let facts = enactment_facts(Some(order), &enactment.status, order);
        order.permit == knmstate_api::Permit::Apply && facts.order.is_some_and(|order| !order.is_finished)
    })
}

fn read_pool(object: DeserializeGuard<SlimPool>) -> Option<Pool> {
    let spec = object.0.ok()?.spec;
    Some(Pool {
        node_selector: spec.node_selector,
        paused: spec.paused,
        max_unavailable: spec.max_unavailable,
    })
}
