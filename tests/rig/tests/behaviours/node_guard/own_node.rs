//! What a handler may say of its own node, and what it may not even there.

use std::time::Duration;

use anyhow::Result;
use kube::Client;
use rig::{BoundTo, Settings, request::Request, wait};
use serde_json::{Value, json};

use super::{
    DOTTED, ENACTMENTS, OTHER, OWN, STATES,
    attempts::{Record, read},
    cluster::{Cluster, enactment, enactment_without_order, owner, put, state},
};

const WHO: &str = "handler of worker";
const WISHES: &str = "what it should be (spec.managed, spec.desiredState) is for an admin to write";
const OWNERS: &str =
    "the handler of node worker may name the Node worker as owner of its NodeNetworkState, and no other";
const FINALIZERS: &str = "a handler sets and removes no finalizers";

#[tokio::test]
async fn a_handler_can_only_report_on_its_own_node() -> Result<()> {
    // So that it is the guard that refuses, and not the rule for everybody.
    let settings = Settings { allow_node_state_configuration: true, ..Settings::default() };
    let cluster = Cluster::start(&settings).await?;
    let handler = cluster.client_of("nmstate-handler", BoundTo::Pod("nmstate-handler-worker")).await?;
    let mut record = Record::default();
    the_node_state(&handler, &mut record).await?;
    what_an_admin_wrote(&cluster, &handler, &mut record).await?;
    enactments(&cluster, &handler, &mut record).await?;
    nothing_but_the_status(&cluster, &handler, &mut record).await?;
    with_every_right(&cluster, &handler, &mut record).await?;
    record.conclusion()
}

async fn the_node_state(handler: &Client, record: &mut Record) -> Result<()> {
    let own_state = format!("{STATES}/{OWN}");
    let merge = |part: Value| Request::merge(&own_state, part);
    let mut unnamed = state("");
    unnamed["metadata"] = json!({"generateName": "worker-"});
    unnamed["spec"] = json!({});
    let not_own =
        "the handler of node worker may write the NodeNetworkState of its own node only, not worker";
    record.must_be_refused(WHO, handler, &Request::create(STATES, unnamed), not_own).await?;

    let cases = [
        (json!({"spec": {"nodeName": OWN, "desiredState": {"interfaces": []}}}), WISHES),
        (json!({"spec": {"nodeName": OWN, "managed": true}}), WISHES),
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
        record.must_be_refused(WHO, handler, &Request::create(STATES, object.clone()), why).await?;
        record.must_be_refused(WHO, handler, &Request::apply(&own_state, object), why).await?;
    }
    record.must_work(WHO, handler, &Request::create(STATES, state(OWN))).await?;
    for (part, why) in &cases {
        record.must_be_refused(WHO, handler, &merge(part.clone()), why).await?;
    }
    record.must_work(WHO, handler, &merge(json!({"spec": {"managed": false}}))).await?;
    record.must_work(WHO, handler, &merge(json!({"metadata": {"ownerReferences": [owner(OWN)]}}))).await?;
    Ok(())
}

/// Whose an enactment is, is told by name, label and order together.
async fn enactments(cluster: &Cluster, handler: &Client, record: &mut Record) -> Result<()> {
    put(&cluster.api, &enactment_without_order("worker.astray", &json!({"nmstate.io/node": OTHER}))).await?;
    put(&cluster.api, &enactment_without_order("worker1.astray", &json!({"nmstate.io/node": OWN}))).await?;
    put(&cluster.api, &enactment_without_order("worker.bare", &Value::Null)).await?;
    let mut mislabelled = enactment(DOTTED, "q");
    mislabelled["metadata"]["labels"]["nmstate.io/node"] = json!(OWN);
    put(&cluster.api, &mislabelled).await?;
    let told = json!({"status": {"policyGeneration": 7}});
    for name in ["worker.astray", "worker1.astray", "worker.bare", "worker.1.q", "worker.1.p", "worker1.p"] {
        let why =
            format!("the handler of node worker may write the enactments of its own node only, not {name}");
        let request = Request::merge(&format!("{ENACTMENTS}/{name}/status"), told.clone());
        record.must_be_refused(WHO, handler, &request, &why).await?;
    }
    put(&cluster.api, &enactment_without_order("worker.old", &json!({"nmstate.io/node": OWN}))).await?;
    let request = Request::merge(&format!("{ENACTMENTS}/worker.old/status"), told.clone());
    record.must_work(WHO, handler, &request).await?;
    Ok(())
}

/// A write to a status changes nothing else.
async fn nothing_but_the_status(cluster: &Cluster, handler: &Client, record: &mut Record) -> Result<()> {
    let own_enactment = format!("{ENACTMENTS}/{OWN}.p");
    let before = read(&cluster.admin, &own_enactment).await?;
    let smuggled = json!({
        "metadata": {"labels": {"nmstate.io/node": OTHER}, "ownerReferences": [owner(OTHER)]},
        "spec": {"permit": "Apply"},
        "status": {"policyGeneration": 7},
    });
    record.must_work(WHO, handler, &Request::merge(&format!("{own_enactment}/status"), smuggled)).await?;
    let after = read(&cluster.admin, &own_enactment).await?;
    assert_eq!(after["status"]["policyGeneration"], 7);
    assert_eq!(after["spec"], before["spec"]);
    for part in ["labels", "ownerReferences"] {
        assert_eq!(after["metadata"][part], before["metadata"][part]);
    }
    Ok(())
}

/// It is no obstacle to reports, and stays as it is.
async fn what_an_admin_wrote(cluster: &Cluster, handler: &Client, record: &mut Record) -> Result<()> {
    let own_state = format!("{STATES}/{OWN}");
    let merge = |part: Value| Request::merge(&own_state, part);
    let mine = json!({
        "metadata": {"ownerReferences": [owner(OTHER)], "finalizers": ["example.com/mine"]},
        "spec": {"managed": true, "desiredState": {"interfaces": []}},
    });
    record.must_work("admin", &cluster.admin, &merge(mine)).await?;
    let report =
        Request::merge(&format!("{own_state}/status"), json!({"status": {"handlerNmstateVersion": "2"}}));
    record.must_work(WHO, handler, &report).await?;
    record.must_work(WHO, handler, &Request::apply(&own_state, state(OWN))).await?;
    for (part, why) in [
        (json!({"metadata": {"finalizers": null}}), FINALIZERS),
        (json!({"spec": {"managed": false}}), WISHES),
        (json!({"spec": {"desiredState": null}}), WISHES),
        (json!({"spec": {"desiredState": {"interfaces": [{"name": "eth1"}]}}}), WISHES),
    ] {
        record.must_be_refused(WHO, handler, &merge(part), why).await?;
    }
    Ok(())
}

/// The guard stands where rights alone would not: here they are given.
async fn with_every_right(cluster: &Cluster, handler: &Client, record: &mut Record) -> Result<()> {
    let (own_state, own_enactment) = (format!("{STATES}/{OWN}"), format!("{ENACTMENTS}/{OWN}.p"));
    let everything = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: careless}, \
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, \
        subjects: [{kind: ServiceAccount, name: nmstate-handler, namespace: nmstate}]}";
    cluster.api.kubectl_with(everything, ["create", "-f", "-"]).await?.success()?;
    wait::until(Duration::from_secs(10), "the rights to be given", async || {
        read(handler, "/api/v1/namespaces/nmstate/secrets").await
    })
    .await?;
    let no_deletion = "a handler deletes no NodeNetworkState";
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
        record.must_be_refused("handler with every right", handler, &request, why).await?;
    }
    Ok(())
}
