//! What a handler may do. The node guard narrows its writes further, to the objects of its own node.

use super::{CORE, Holder, NMSTATE, allow};
use crate::{Object, Settings};

pub fn handler(settings: &Settings) -> Vec<Object> {
    let holder = Holder { settings, account: "nmstate-handler" };
    let everywhere = holder.everywhere(vec![
        allow(NMSTATE, &["nodenetworkconfigurationenactments"], &["list", "watch"]),
        allow(NMSTATE, &["nodenetworkconfigurationenactments/status"], &["patch"]),
        // Applying what is not there makes it, which takes the right to create.
        allow(NMSTATE, &["nodenetworkstates"], &["list", "watch", "create", "patch"]),
        allow(NMSTATE, &["nodenetworkstates/status"], &["patch"]),
        allow(CORE, &["nodes"], &["get"]),
    ]);
    // The kubelet's heartbeat, by which one of the probes knows that the node is heard of.
    let heartbeat = holder.in_namespace(
        "kube-node-lease",
        "nmstate-handler",
        vec![allow("coordination.k8s.io", &["leases"], &["get"])],
    );
    [vec![holder.account()], everywhere.into(), heartbeat.into()].concat()
}
