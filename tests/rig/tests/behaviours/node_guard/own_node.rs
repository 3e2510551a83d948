//! What a handler may write about its own node, and what it may not.

use std::time::Duration;

use anyhow::Result;
use knmstate_api::names;
use kube::Client;
use rig::{BoundTo, Settings, request::Request, wait};
use serde_json::{Value, json};

use super::{
    DOTTED, ENACTMENTS, OTHER, OWN, STATES,
    attempts::{AttemptLog, read},
    cluster::{GuardedCluster, enactment, enactment_without_order, owner, put, state},
};

const WHO: &str = "handler of worker";
const ADMIN_FIELDS: &str = "spec.managed and spec.desiredState are for an admin to write";
const OWNERS: &str =
    "the handler of node worker may name the Node worker as owner of its NodeNetworkState, and no other";
const FINALIZERS: &str = "a handler cannot set or remove finalizers";

#[tokio::test]
async fn a_handler_can_only_report_on_its_own_node() -> Result<()> {
    // Allowed, so that the node guard refuses, and not the rule that counts for all clients.
    let settings = Settings { allow_node_state_configuration: true, ..Settings::default() };
    let cluster = GuardedCluster::start(&settings).await?;
    let handler = cluster.client_of("nmstate-handler", BoundTo::Pod("nmstate-handler-worker")).await?;
    let mut log = AttemptLog::default();
    the_node_state(&handler, &mut log).await?;
    what_an_admin_wrote(&cluster, &handler, &mut log).await?;
    enactments(&cluster, &handler, &mut log).await?;
    nothing_but_the_status(&cluster, &handler, &mut log).await?;
    with_every_right(&cluster, &handler, &mut log).await?;
    log.conclusion()
}

/// Labels and names of enactments have only the beginning of a name that is longer than the value of a label.
#[tokio::test]
async fn the_handler_of_a_node_with_a_long_name_reports_on_its_own_node_only() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let [own, other] = ["a", "b"].map(|end| format!("{}{end}", "long-name-".repeat(7)));
    let order = |node: &str, policy: &str, labelled: &str| {
        let mut order = enactment(node, policy);
        order["metadata"]["labels"]["nmstate.io/node"] = json!(names::node_label(labelled));
        order["metadata"]["ownerReferences"] = json!([owner(node)]);
        order
    };
    let [own_order, other_order] = [&own, &other].map(|node| names::enactment_name(node, "p"));
    // Two that look like those of the node: one with an order for another node, and one without an order.
    let (mislabelled, bare) = (names::enactment_name(&other, "q"), names::enactment_name(&own, "bare"));
    let labels = json!({"nmstate.io/node": names::node_label(&own)});
    for object in [
        order(&own, "p", &own),
        order(&other, "p", &other),
        order(&other, "q", &own),
        enactment_without_order(&bare, &labels),
    ] {
        put(&cluster.api, &object).await?;
    }
    for node in [&own, &other] {
        cluster.api.add_ready_node(node).await?;
        cluster.api.add_handler_pod(node).await?;
    }
    let pod = format!("nmstate-handler-{own}");
    let handler = cluster.client_of("nmstate-handler", BoundTo::Pod(&pod)).await?;
    let mut log = AttemptLog::default();
    let report = |name| {
        Request::merge(&format!("{ENACTMENTS}/{name}/status"), json!({"status": {"policyGeneration": 7}}))
    };
    for name in [&other_order, &mislabelled, &bare] {
        let why = format!("may write the enactments of its own node only, not {name}");
        log.must_be_refused("handler of a long name", &handler, &report(name), &why).await?;
    }
    log.must_work("handler of a long name", &handler, &report(&own_order)).await?;
    log.must_work("handler of a long name", &handler, &Request::create(STATES, state(&own))).await?;
    log.conclusion()
}

async fn the_node_state(handler: &Client, log: &mut AttemptLog) -> Result<()> {
    let own_state = format!("{STATES}/{OWN}");
    let merge = |part: Value| Request::merge(&own_state, part);
    let mut unnamed = state("");
    unnamed["metadata"] = json!({"generateName": "worker-"});
    unnamed["spec"] = json!({});
    let not_own =
        "the handler of node worker may write the NodeNetworkState of its own node only, not worker";
    log.must_be_refused(WHO, handler, &Request::create(STATES, unnamed), not_own).await?;

    let cases = [
        (json!({"spec": {"nodeName": OWN, "desiredState": {"interfaces": []}}}), ADMIN_FIELDS),
        (json!({"spec": {"nodeName": OWN, "managed": true}}), ADMIN_FIELDS),
        (json!({"metadata": {"ownerReferences": [owner(OTHER)]}}), OWNERS),
        (json!({"metadata": {"ownerReferences": [owner(OWN), owner(OTHER)]}}), OWNERS),
        (json!({"metadata": {"finalizers": ["example.com/for-ever"]}}), FINALIZERS),
    ];
    for (part, why) in &cases {
        let mut object = state(OWN);
        for (key, fields) in part.as_object().into_iter().flatten() {
            for (field, value) in fields.as_object().into_iter().flatten() {
                object[key][field] = value.clone();
            }
        }
        log.must_be_refused(WHO, handler, &Request::create(STATES, object.clone()), why).await?;
        log.must_be_refused(WHO, handler, &Request::apply(&own_state, object), why).await?;
    }
    log.must_work(WHO, handler, &Request::create(STATES, state(OWN))).await?;
    for (part, why) in &cases {
        log.must_be_refused(WHO, handler, &merge(part.clone()), why).await?;
    }
    log.must_work(WHO, handler, &merge(json!({"spec": {"managed": false}}))).await?;
    log.must_work(WHO, handler, &merge(json!({"metadata": {"ownerReferences": [owner(OWN)]}}))).await?;
    Ok(())
}

/// Name, label and order together decide which node an enactment belongs to.
async fn enactments(cluster: &GuardedCluster, handler: &Client, log: &mut AttemptLog) -> Result<()> {
    put(&cluster.api, &enactment_without_order("worker.astray", &json!({"nmstate.io/node": OTHER}))).await?;
    put(&cluster.api, &enactment_without_order("worker1.astray", &json!({"nmstate.io/node": OWN}))).await?;
    put(&cluster.api, &enactment_without_order("worker.bare", &Value::Null)).await?;
    let mut mislabelled = enactment(DOTTED, "q");
    mislabelled["metadata"]["labels"]["nmstate.io/node"] = json!(OWN);
    put(&cluster.api, &mislabelled).await?;
    let report = json!({"status": {"policyGeneration": 7}});
    for name in ["worker.astray", "worker1.astray", "worker.bare", "worker.1.q", "worker.1.p", "worker1.p"] {
        let why =
            format!("the handler of node worker may write the enactments of its own node only, not {name}");
        let request = Request::merge(&format!("{ENACTMENTS}/{name}/status"), report.clone());
        log.must_be_refused(WHO, handler, &request, &why).await?;
    }
    put(&cluster.api, &enactment_without_order("worker.old", &json!({"nmstate.io/node": OWN}))).await?;
    let request = Request::merge(&format!("{ENACTMENTS}/worker.old/status"), report.clone());
    log.must_work(WHO, handler, &request).await?;
    Ok(())
}

/// A write to a status changes nothing else.
async fn nothing_but_the_status(
    cluster: &GuardedCluster,
    handler: &Client,
    log: &mut AttemptLog,
) -> Result<()> {
    let own_enactment = format!("{ENACTMENTS}/{OWN}.p");
    let before = read(&cluster.admin, &own_enactment).await?;
    let smuggled = json!({
        "metadata": {"labels": {"nmstate.io/node": OTHER}, "ownerReferences": [owner(OTHER)]},
        "spec": {"permit": "Apply"},
        "status": {"policyGeneration": 7},
    });
    log.must_work(WHO, handler, &Request::merge(&format!("{own_enactment}/status"), smuggled)).await?;
    let after = read(&cluster.admin, &own_enactment).await?;
    assert_eq!(after["status"]["policyGeneration"], 7);
    assert_eq!(after["spec"], before["spec"]);
    for part in ["labels", "ownerReferences"] {
        assert_eq!(after["metadata"][part], before["metadata"][part]);
    }
    Ok(())
}

/// Fields that an admin wrote do not block reports, and a handler cannot change them.
async fn what_an_admin_wrote(cluster: &GuardedCluster, handler: &Client, log: &mut AttemptLog) -> Result<()> {
    let own_state = format!("{STATES}/{OWN}");
    let merge = |part: Value| Request::merge(&own_state, part);
    let mine = json!({
        "metadata": {"ownerReferences": [owner(OTHER)], "finalizers": ["example.com/mine"]},
        "spec": {"managed": true, "desiredState": {"interfaces": []}},
    });
    log.must_work("admin", &cluster.admin, &merge(mine)).await?;
    let report =
        Request::merge(&format!("{own_state}/status"), json!({"status": {"handlerNmstateVersion": "2"}}));
    log.must_work(WHO, handler, &report).await?;
    log.must_work(WHO, handler, &Request::apply(&own_state, state(OWN))).await?;
    for (part, why) in [
        (json!({"metadata": {"finalizers": null}}), FINALIZERS),
        (json!({"spec": {"managed": false}}), ADMIN_FIELDS),
        (json!({"spec": {"desiredState": null}}), ADMIN_FIELDS),
        (json!({"spec": {"desiredState": {"interfaces": [{"name": "eth1"}]}}}), ADMIN_FIELDS),
    ] {
        log.must_be_refused(WHO, handler, &merge(part), why).await?;
    }
    Ok(())
}

/// The guard refuses even if the handler has all rights.
async fn with_every_right(cluster: &GuardedCluster, handler: &Client, log: &mut AttemptLog) -> Result<()> {
    let (own_state, own_enactment) = (format!("{STATES}/{OWN}"), format!("{ENACTMENTS}/{OWN}.p"));
    let everything = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: careless}, \
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, \
        subjects: [{kind: ServiceAccount, name: nmstate-handler, namespace: nmstate}]}";
    cluster.api.kubectl_with(everything, ["create", "-f", "-"]).await?.success()?;
    wait::until(Duration::from_secs(10), "the rights to take effect", async || {
        read(handler, "/api/v1/namespaces/nmstate/secrets").await
    })
    .await?;
    let no_deletion = "a handler cannot delete a NodeNetworkState";
    let status_only = "a handler writes the status of an enactment only";
    for (request, why) in [
        (Request::delete(&own_state), no_deletion),
        (Request::delete(&format!("{STATES}/{OTHER}")), no_deletion),
        (Request::delete_collection(STATES), no_deletion),
        (Request::merge(&format!("{STATES}/{OTHER}/status"), json!({"status": {}})), "of its own node only"),
        (Request::delete(&own_enactment), status_only),
        (Request::delete_collection(ENACTMENTS), status_only),
        (Request::create(ENACTMENTS, enactment(OWN, "made-up")), status_only),
        (Request::merge(&own_enactment, json!({"spec": {"permit": "Apply"}})), status_only),
    ] {
        log.must_be_refused("handler with every right", handler, &request, why).await?;
    }
    Ok(())
}
