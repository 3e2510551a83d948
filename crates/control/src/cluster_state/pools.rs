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
use knmstate_client::{store::Store, watch::ObjectEvent};
use knmstate_core::{Member, Pool, Pools, rollout::enactment_facts};
use kube::Resource;
use serde::Deserialize;

use super::{ClusterState, Enactment, Handler, Node, Origin, Policy};

/// The API that pools are read by.
pub(crate) const POOLS_API: &str = "machineconfiguration.openshift.io/v1";
pub(crate) const POOL_KIND: &str = "MachineConfigPool";
/// The progress of the machine-config operator on a node; `Done` while it does not update it.
pub(super) const STATE_ANNOTATION: &str = "machineconfiguration.openshift.io/state";

/// A pool, with only the fields that are needed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SlimPool {
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

/// The pools, which are watched only while a policy needs them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum KnownPools {
    #[default]
    NotRead,
    /// This cluster has no such kind.
    NoSuchKind,
    Pools(Store<Pool>),
}

/// Whether a policy is to be rolled out through pools.
pub(crate) fn needs_pools(policy: &Policy) -> bool {
    let rollout = policy.spec.rollout.as_ref();
    rollout.and_then(|rollout| rollout.through) == Some(Through::MachineConfigPool)
}

impl ClusterState {
    /// The pools.
    pub(crate) fn pools(&self) -> &KnownPools {
        &self.pools
    }

    /// Whether any policy is to be rolled out through pools.
    pub(crate) fn needs_pools(&self) -> bool {
        self.policies.values().any(needs_pools)
    }

    pub(crate) fn observe_pools(&mut self, event: ObjectEvent<SlimPool>) {
        let (mut pools, were_known) = match std::mem::take(&mut self.pools) {
            KnownPools::Pools(pools) => (pools, true),
            KnownPools::NotRead | KnownPools::NoSuchKind => (Store::default(), false),
        };
        let changes = pools.apply(event, |pool, _| Some(read_pool(pool)));
        self.pools = KnownPools::Pools(pools);
        if !were_known || !changes.changed.is_empty() {
            self.affected.extend(self.through_pools());
        }
    }

    /// Replaces the pools.
    pub(crate) fn set_pools(&mut self, known: KnownPools) {
        if self.pools != known {
            self.pools = known;
            self.affected.extend(self.through_pools());
        }
    }

    /// The policies that are rolled out through pools. The nodes that one is changing are unavailable to the others.
    pub(super) fn through_pools(&self) -> Vec<Origin> {
        let asking = self.policies.iter().filter(|(_, policy)| needs_pools(policy));
        asking.map(|(name, _)| Origin::Policy(name.clone())).collect()
    }

    /// The pools with their nodes, from the point of view of one policy.
    pub(crate) fn pools_for(&self, pools: &BTreeMap<String, Pool>, origin: &Origin, now: Timestamp) -> Pools {
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

/// Whether a node is unavailable to workloads, or its pool is updating it.
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

fn read_pool(pool: SlimPool) -> Pool {
    let PoolSpec { node_selector, paused, max_unavailable } = pool.spec;
    Pool { node_selector, paused, max_unavailable }
}
