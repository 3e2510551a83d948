//! What a stolen token can do: the token of one node's handler, one without a node, and the controller's, each with
//! every verb on objects that are not its own.

mod attempts;
mod cluster;
mod own_node;
mod targets;

use anyhow::{Result, ensure};
use rig::{BoundTo, Settings, request::Request};
use serde_json::{Value, json};

use self::{
    attempts::{AttemptLog, Target, read},
    cluster::{GuardedCluster, enactment, state},
    targets::{not_for_handlers, ways_around, work_of_handler},
};

/// The node whose token is stolen.
const OWN: &str = "worker";
/// Their names begin like the first one's, and so do those of their enactments.
const OTHER: &str = "worker1";
const DOTTED: &str = "worker.1";

const STATES: &str = "/apis/nmstate.io/v1beta1/nodenetworkstates";
const ENACTMENTS: &str = "/apis/nmstate.io/v1beta1/nodenetworkconfigurationenactments";
const HANDLER: &str = "system:serviceaccount:nmstate:nmstate-handler";
const NO_NODE: &str = "the token does not name the node of its handler";

#[tokio::test]
async fn a_handlers_token_gives_access_to_the_objects_of_its_own_node_only() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let handler = cluster.client_of("nmstate-handler", BoundTo::Pod("nmstate-handler-worker")).await?;
    let unbound = cluster.client_of("nmstate-handler", BoundTo::Nothing).await?;
    let targets = not_for_handlers();
    let before = cluster.versions(&targets).await?;

    let mut log = AttemptLog::default();
    for (who, client) in [("handler of worker", &handler), ("token without a node", &unbound)] {
        for target in &targets {
            for attempt in target.attempts(&cluster.admin).await? {
                log.must_be_refused(who, client, &attempt, "").await?;
            }
        }
        for attempt in ways_around() {
            log.must_be_refused(who, client, &attempt, "").await?;
        }
    }
    let after = cluster.versions(&targets).await?;

    let creation = Request::create(STATES, state(OWN));
    log.must_be_refused("token without a node", &unbound, &creation, NO_NODE).await?;
    for request in work_of_handler() {
        log.must_work("handler of worker", &handler, &request).await?;
    }
    // The same account without the claim may read, and no more.
    for request in work_of_handler() {
        if request.is_write() {
            log.must_be_refused("token without a node", &unbound, &request, NO_NODE).await?;
            let request = request.impersonating(HANDLER);
            log.must_be_refused("certificate without a node", &cluster.admin, &request, NO_NODE).await?;
        } else {
            log.must_work("token without a node", &unbound, &request).await?;
        }
    }
    log.conclusion()?;
    ensure!(after == before, "something was changed, created or deleted:\n{before:#?}\n{after:#?}");
    Ok(())
}

#[tokio::test]
async fn the_controller_writes_orders_and_no_reports() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let controller = cluster.client_of("nmstate-controller", BoundTo::Nothing).await?;
    let admin = &cluster.admin;
    let (who, mut log) = ("controller", AttemptLog::default());
    let v1 = |kind: &str, resource: &str, name: &str| Target::new("nmstate.io/v1", kind, resource, name);
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});

    let (state_of, policy) = (
        v1("NodeNetworkState", "nodenetworkstates", OTHER),
        v1("NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies", "p"),
    );
    let order = v1("NodeNetworkConfigurationEnactment", "nodenetworkconfigurationenactments", "worker1.p");
    let node = Target::new("v1", "Node", "nodes", OTHER);
    let unrelated_secret = Target::new("v1", "Secret", "namespaces/nmstate/secrets", "unrelated");
    let webhook = Target::new(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "other",
    );
    let status = json!({"status": {"handlerNmstateVersion": "x", "policyGeneration": 99}});
    let mut attempts = Vec::new();
    for (target, path, change) in [
        (&state_of, state_of.path(), &mark),
        (&state_of, format!("{}/status", state_of.path()), &status),
        (&order, format!("{}/status", order.path()), &status),
        (&policy, policy.path(), &mark),
        (&node, node.path(), &mark),
        (&unrelated_secret, unrelated_secret.path(), &mark),
        (&webhook, webhook.path(), &mark),
    ] {
        attempts.extend(target.writes(admin, &path, change).await?);
    }
    attempts.extend([
        Request::create(STATES, state("worker2")),
        Request::delete(&state_of.path()),
        Request::delete(&policy.path()),
        Request::read(&unrelated_secret.path()),
        Request::read("/api/v1/namespaces/nmstate/secrets"),
        Request::read("/api/v1/namespaces/kube-system/secrets"),
        Request::delete("/api/v1/namespaces/nmstate/pods/nmstate-handler-worker1"),
        Request::delete_collection(ENACTMENTS),
    ]);
    attempts.extend(ways_around().into_iter().filter(|request| !request.to_string().ends_with("/events")));
    for attempt in &attempts {
        log.must_be_refused(who, &controller, attempt, "").await?;
    }

    let created = enactment(OTHER, "created");
    let (created_path, ca) =
        (format!("{ENACTMENTS}/worker1.created"), "/api/v1/namespaces/nmstate/secrets/nmstate-ca");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/nmstate/leases/nmstate-controller";
    let mut held = read(admin, lease).await?;
    held["spec"] = json!({"holderIdentity": "me"});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "name": "p"}});
    for request in [
        Request::read("/apis/nmstate.io/v1/nodenetworkconfigurationpolicies"),
        Request::watch("/apis/nmstate.io/v1/nodenetworkconfigurationpolicies"),
        Request::merge(&format!("{}/status", policy.path()), json!({"status": {"unavailableNodeCount": 1}})),
        Request::apply(&created_path, created),
        Request::merge(
            &created_path,
            json!({"spec": {"permit": "Apply"}, "status": {"policyGeneration": 99}}),
        ),
        Request::read(&created_path),
        Request::read(STATES),
        Request::read("/apis/nmstate.io/v1/nmstates"),
        Request::watch("/api/v1/nodes"),
        Request::watch("/api/v1/namespaces/nmstate/pods"),
        Request::watch(
            "/apis/coordination.k8s.io/v1/namespaces/nmstate/leases?fieldSelector=metadata.name%3Dnmstate-controller",
        ),
        Request::update(lease, held),
        Request::watch("/api/v1/namespaces/nmstate/secrets?fieldSelector=metadata.name%3Dnmstate-ca"),
        Request::merge(ca, json!({"stringData": {"ca.crt": "x"}})),
        Request::read(&format!("{webhooks}?fieldSelector=metadata.name%3Dnmstate")),
        Request::merge(&format!("{webhooks}/nmstate"), json!({"metadata": {"annotations": {"a": "b"}}})),
        Request::create("/api/v1/namespaces/default/events", event),
    ] {
        log.must_work(who, &controller, &request).await?;
    }
    let created = read(admin, &created_path).await?;
    assert_eq!(created["status"]["policyGeneration"], Value::Null, "the controller has reported for a node");
    log.must_work(who, &controller, &Request::delete(&created_path)).await?;
    log.conclusion()
}
