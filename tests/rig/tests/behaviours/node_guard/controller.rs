//! The controller's token.

use anyhow::Result;
use rig::{BoundTo, Settings, request::Request};
use serde_json::{Value, json};

use super::{
    ENACTMENTS, OTHER, STATES,
    attempts::{AttemptLog, Target, read},
    cluster::{GuardedCluster, enactment, state},
    targets::ways_around,
};

const WHO: &str = "controller";
const SECRETS: &str = "/api/v1/namespaces/nmstate/secrets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/nmstate/leases";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const WEBHOOKS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

fn v1(kind: &str, resource: &str, name: &str) -> Target {
    Target::new("nmstate.io/v1", kind, resource, name)
}

#[tokio::test]
async fn the_controller_writes_orders_and_no_reports() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let controller = cluster.client_of("nmstate-controller", BoundTo::Nothing).await?;
    let admin = &cluster.admin;
    let mut log = AttemptLog::default();
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});

    let (state_of, policy) = (
        v1("NodeNetworkState", "nodenetworkstates", OTHER),
        v1("NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies", "p"),
    );
    let order = v1("NodeNetworkConfigurationEnactment", "nodenetworkconfigurationenactments", "worker1.p");
    let node = Target::new("v1", "Node", "nodes", OTHER);
    let status = json!({"status": {"handlerNmstateVersion": "x", "policyGeneration": 99}});
    let mut attempts = Vec::new();
    for (target, path, change) in [
        (&state_of, state_of.path(), &mark),
        (&state_of, format!("{}/status", state_of.path()), &status),
        (&order, format!("{}/status", order.path()), &status),
        (&policy, policy.path(), &mark),
        (&node, node.path(), &mark),
    ] {
        attempts.extend(target.writes(admin, &path, change).await?);
    }
    attempts.extend([
        Request::create(STATES, state("worker2")),
        Request::delete(&state_of.path()),
        Request::delete(&policy.path()),
        Request::delete("/api/v1/namespaces/nmstate/pods/nmstate-handler-worker1"),
        Request::delete_collection(ENACTMENTS),
    ]);
    attempts.extend(ways_around().into_iter().filter(|request| !request.to_string().ends_with("/events")));
    for attempt in &attempts {
        log.must_be_refused(WHO, &controller, attempt, "").await?;
    }

    let created = enactment(OTHER, "created");
    let created_path = format!("{ENACTMENTS}/worker1.created");
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
    ] {
        log.must_work(WHO, &controller, &request).await?;
    }
    let created = read(admin, &created_path).await?;
    assert_eq!(created["status"]["policyGeneration"], Value::Null, "the controller has reported for a node");
    log.must_work(WHO, &controller, &Request::delete(&created_path)).await?;
    log.conclusion()
}

/// A thief would become an admin by a webhook that sees every request, or by the token of a more powerful account.
#[tokio::test]
async fn the_controllers_token_makes_no_admin() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let controller = cluster.client_of("nmstate-controller", BoundTo::Nothing).await?;
    let mut log = AttemptLog::default();
    for attempt in webhook_attempts(&cluster).await?.iter().chain(&workload_attempts()) {
        log.must_be_refused(WHO, &controller, attempt, "").await?;
    }
    let unrelated = Target::new("v1", "Secret", "namespaces/nmstate/secrets", "unrelated");
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
    for attempt in unrelated.writes(&cluster.admin, &unrelated.path(), &mark).await? {
        log.must_be_refused(WHO, &controller, &attempt, "").await?;
    }
    for attempt in [
        Request::read(&unrelated.path()),
        Request::read(SECRETS),
        Request::watch(SECRETS),
        Request::read("/api/v1/namespaces/kube-system/secrets"),
        Request::create("/api/v1/namespaces/kube-system/secrets", secret("nmstate-webhook", "Opaque")),
    ] {
        log.must_be_refused(WHO, &controller, &attempt, "").await?;
    }
    for (attempt, guard) in guarded() {
        log.must_be_refused(WHO, &controller, &attempt, guard).await?;
    }
    for request in own_objects(&cluster).await? {
        log.must_work(WHO, &controller, &request).await?;
    }
    log.conclusion()
}

/// Every write to the webhook configurations, its own and others.
async fn webhook_attempts(cluster: &GuardedCluster) -> Result<Vec<Request>> {
    let mut attempts = Vec::new();
    for (kind, resource) in WEBHOOKS {
        let thief = json!([{
            "name": "thief.example.org",
            "clientConfig": {"url": "https://thief.example.org"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }]);
        let target = Target::new(ADMISSION, kind, resource, "nmstate");
        let path = target.path();
        attempts.push(Request::merge(&path, json!({"webhooks": thief})));
        let mut whole = read(&cluster.admin, &path).await?;
        whole["webhooks"] = thief;
        attempts.push(Request::update(&path, whole));
        let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
        attempts.extend(target.writes(&cluster.admin, &path, &mark).await?);
        attempts.extend([
            Request::create(
                &format!("/apis/{ADMISSION}/{resource}"),
                json!({"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": "new"}}),
            ),
            Request::delete(&path),
            Request::read(&format!("/apis/{ADMISSION}/{resource}")),
        ]);
    }
    let other = Target::new(ADMISSION, WEBHOOKS[0].0, WEBHOOKS[0].1, "other");
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
    attempts.extend(other.writes(&cluster.admin, &other.path(), &mark).await?);
    Ok(attempts)
}

/// Objects that would run, or let run, something with other rights.
fn workload_attempts() -> Vec<Request> {
    let of = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "stolen"}});
    let rights = "rbac.authorization.k8s.io/v1";
    let namespace = "namespaces/nmstate";
    vec![
        Request::create(&format!("/api/v1/{namespace}/pods"), of("v1", "Pod")),
        Request::create(&format!("/api/v1/{namespace}/configmaps"), of("v1", "ConfigMap")),
        Request::create(&format!("/api/v1/{namespace}/serviceaccounts"), of("v1", "ServiceAccount")),
        Request::create(&format!("/apis/apps/v1/{namespace}/deployments"), of("apps/v1", "Deployment")),
        Request::create(&format!("/apis/apps/v1/{namespace}/daemonsets"), of("apps/v1", "DaemonSet")),
        Request::create(&format!("/apis/batch/v1/{namespace}/jobs"), of("batch/v1", "Job")),
        Request::create(&format!("/apis/{rights}/{namespace}/roles"), of(rights, "Role")),
        Request::create(&format!("/apis/{rights}/{namespace}/rolebindings"), of(rights, "RoleBinding")),
        Request::create(&format!("/apis/{rights}/clusterroles"), of(rights, "ClusterRole")),
        Request::create(&format!("/apis/{rights}/clusterrolebindings"), of(rights, "ClusterRoleBinding")),
        Request::delete(&format!(
            "/apis/{ADMISSION}/validatingadmissionpolicybindings/nmstate-controller-guard-secrets-binding"
        )),
        Request::delete(&format!("{SECRETS}/nmstate-ca")),
        Request::delete(&format!("{LEASES}/nmstate-controller")),
        Request::delete("/api/v1/namespaces/nmstate/configmaps/nmstate-ca-bundle"),
    ]
}

/// Requests that the rights allow, because they cannot be restricted by name or content, with the guard that refuses them.
fn guarded() -> Vec<(Request, &'static str)> {
    let token = "kubernetes.io/service-account-token";
    let token_of = |name: &str, account: &str| {
        let mut secret = secret(name, token);
        secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": account});
        Request::create(SECRETS, secret)
    };
    let mut generated = secret("", "Opaque");
    generated["metadata"] = json!({"generateName": "nmstate-ca"});
    let ca = format!("{SECRETS}/nmstate-ca");
    let annotation = json!({"kubernetes.io/service-account.name": "nmstate-handler"});
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"holderIdentity": "thief"}});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": OTHER}});
    let bundle = "/api/v1/namespaces/nmstate/configmaps/nmstate-ca-bundle";
    let (secrets, maps) = ("nmstate-controller-guard-secrets", "nmstate-controller-guard-configmaps");
    vec![
        (token_of("stolen", "nmstate-handler"), secrets),
        (token_of("stolen", "nmstate-operator"), secrets),
        (token_of("nmstate-webhook", "nmstate-handler"), secrets),
        (Request::create(SECRETS, secret("stolen", "Opaque")), secrets),
        (Request::create(SECRETS, secret("nmstate-webhook", "kubernetes.io/dockercfg")), secrets),
        (Request::create(SECRETS, generated), secrets),
        (Request::merge(&ca, json!({"metadata": {"annotations": annotation}})), secrets),
        (Request::merge(&ca, json!({"metadata": {"finalizers": ["example.org/never"]}})), secrets),
        (Request::merge(bundle, json!({"immutable": true})), maps),
        (Request::merge(bundle, json!({"data": {"other": "x"}})), maps),
        (Request::merge(bundle, json!({"metadata": {"finalizers": ["example.org/never"]}})), maps),
        (Request::create(LEASES, lease("nmstate-operator")), "nmstate-controller-guard-leases"),
        (Request::create(LEASES, lease("stolen")), "nmstate-controller-guard-leases"),
        (Request::create("/api/v1/namespaces/default/events", event), "nmstate-controller-guard-events"),
    ]
}

fn secret(name: &str, type_: &str) -> Value {
    let data = match type_ {
        "kubernetes.io/tls" => json!({"tls.crt": "x", "tls.key": "x"}),
        "kubernetes.io/dockercfg" => json!({".dockercfg": "{}"}),
        _ => json!({}),
    };
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": type_, "stringData": data})
}

/// What the controllers do with these kinds.
async fn own_objects(cluster: &GuardedCluster) -> Result<Vec<Request>> {
    let named = |collection: &str, name: &str| format!("{collection}?fieldSelector=metadata.name%3D{name}");
    let lease = format!("{LEASES}/nmstate-controller");
    let mut held = read(&cluster.admin, &lease).await?;
    held["spec"] = json!({"holderIdentity": "me"});
    let ca = format!("{SECRETS}/nmstate-ca");
    let maps = "/api/v1/namespaces/nmstate/configmaps";
    let mutating = format!("/apis/{ADMISSION}/{}", WEBHOOKS[0].1);
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "p."},
        "involvedObject": {"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "name": "p"}});
    Ok(vec![
        Request::watch(&named(LEASES, "nmstate-controller")),
        Request::update(&lease, held),
        Request::read(&ca),
        Request::watch(&named(SECRETS, "nmstate-ca")),
        Request::merge(&ca, json!({"stringData": {"ca.crt": "x"}})),
        Request::create(SECRETS, secret("nmstate-webhook", "kubernetes.io/tls")),
        Request::merge(&format!("{SECRETS}/nmstate-webhook"), json!({"stringData": {"tls.crt": "y"}})),
        Request::read(&format!("{maps}/nmstate-ca-bundle")),
        Request::watch(&named(maps, "nmstate-ca-bundle")),
        Request::merge(&format!("{maps}/nmstate-ca-bundle"), json!({"data": {"ca-bundle.crt": "x"}})),
        Request::read(&format!("{mutating}/nmstate")),
        Request::read(&named(&mutating, "nmstate")),
        Request::watch(&named(&mutating, "nmstate")),
        Request::create("/api/v1/namespaces/default/events", event),
    ])
}
