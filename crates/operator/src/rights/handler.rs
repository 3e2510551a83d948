//! The rights of a handler. The node guard narrows its writes further, to the objects of its own node.

use super::{AccountObjects, CORE, NMSTATE, allow};
use crate::{Object, Settings};

pub(crate) fn handler(settings: &Settings) -> Vec<Object> {
    let account = AccountObjects { settings, account: "nmstate-handler" };
    let cluster_wide = account.cluster_wide(vec![
        allow(NMSTATE, &["nodenetworkconfigurationenactments"], &["list", "watch"]),
        allow(NMSTATE, &["nodenetworkconfigurationenactments/status"], &["patch"]),
        // Server-side apply of an object that does not exist needs the right to create it.
        allow(NMSTATE, &["nodenetworkstates"], &["list", "watch", "create", "patch"]),
        allow(NMSTATE, &["nodenetworkstates/status"], &["patch"]),
        allow(CORE, &["nodes"], &["get"]),
    ]);
    // One of the probes reads the kubelet's heartbeat.
    let heartbeat = account.in_namespace(
        "kube-node-lease",
        "nmstate-handler",
        vec![allow("coordination.k8s.io", &["leases"], &["get"])],
    );
    [vec![account.account()], cluster_wide.into(), heartbeat.into()].concat()
}
