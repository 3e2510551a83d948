//! The operator's token. It runs privileged pods on every node, which no right can narrow; the rest of the cluster is out of
//! its reach.

use anyhow::Result;
use knmstate_operator::installation;
use rig::{BoundTo, Settings, request::Request};
use serde_json::{Value, json};

use super::{
    ENACTMENTS, OTHER,
    attempts::{AttemptLog, Target},
    cluster::{GuardedCluster, enactment, put},
    targets::ways_around,
};

const WHO: &str = "operator";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn the_operators_token_is_limited_to_what_the_operator_creates() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let groups = installation::groups(&installation::default_config("knmstate"));
    let objects: Vec<_> = groups.into_iter().flat_map(|group| group.objects).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    cluster.api.kubectl_with(&list, apply).await?.success()?;
    put(&cluster.api, &deployment("unrelated", "nmstate")).await?;
    let operator = cluster.client_of("nmstate-operator", BoundTo::Nothing).await?;

    let mut log = AttemptLog::default();
    for attempt in refused(&cluster).await? {
        log.must_be_refused(WHO, &operator, &attempt, "").await?;
    }
    // Prometheus gets the right to read metrics from it, and controllers get that to create Events.
    let granted =
        |request: &Request| ["/events", "/metrics"].iter().any(|path| request.to_string().ends_with(path));
    for attempt in ways_around().into_iter().filter(|request| !granted(request)) {
        log.must_be_refused(WHO, &operator, &attempt, "").await?;
    }
    println!("What a thief can do with it:");
    for attempt in possible() {
        log.must_work(WHO, &operator, &attempt).await?;
    }
    log.conclusion()
}

async fn refused(cluster: &GuardedCluster) -> Result<Vec<Request>> {
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
    let mut attempts = Vec::new();
    for target in [
        Target::new("v1", "Node", "nodes", OTHER),
        Target::new("v1", "Secret", "namespaces/nmstate/secrets", "unrelated"),
        Target::new("v1", "ConfigMap", "namespaces/nmstate/configmaps", "settings"),
        Target::new("apps/v1", "Deployment", "namespaces/nmstate/deployments", "unrelated"),
        Target::new(RBAC, "ClusterRole", "clusterroles", "cluster-admin"),
        Target::new(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "other",
        ),
        Target::new(
            "nmstate.io/v1",
            "NodeNetworkConfigurationPolicy",
            "nodenetworkconfigurationpolicies",
            "p",
        ),
    ] {
        attempts.extend(target.writes(&cluster.admin, &target.path(), &mark).await?);
    }
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    let (roles, cluster_roles) =
        (format!("/apis/{RBAC}/namespaces/nmstate/roles"), format!("/apis/{RBAC}/clusterroles"));
    let role = |kind: &str, rules: &Value| json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": "stolen"}, "rules": rules});
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "stolen"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "nmstate-operator", "namespace": "nmstate"}],
    });
    attempts.extend([
        Request::create(&roles, role("Role", &secrets)),
        Request::create(&cluster_roles, role("ClusterRole", &everything)),
        Request::merge(&format!("{cluster_roles}/nmstate-operator"), json!({"rules": everything})),
        Request::merge(&format!("{cluster_roles}/nmstate-handler"), json!({"rules": everything})),
        Request::create(&format!("/apis/{RBAC}/clusterrolebindings"), binding),
        Request::read("/api/v1/namespaces/nmstate/secrets"),
        Request::read("/api/v1/namespaces/nmstate/secrets/unrelated"),
        Request::read("/api/v1/namespaces/kube-system/secrets"),
        Request::create(
            "/apis/apps/v1/namespaces/kube-system/deployments",
            deployment("stolen", "kube-system"),
        ),
        Request::create("/api/v1/namespaces/nmstate/pods", json!({"apiVersion": "v1", "kind": "Pod"})),
        Request::delete("/api/v1/nodes/worker1"),
        Request::delete("/api/v1/namespaces/kube-system"),
        Request::delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nmstates.nmstate.io"),
    ]);
    Ok(attempts)
}

/// An operator needs these, or has to have what it grants: as dry runs.
fn possible() -> Vec<Request> {
    let pods = json!({
        "metadata": {"labels": {"name": "stolen"}},
        "spec": {"hostPID": true, "containers": [
            {"name": "stolen", "image": "any", "securityContext": {"privileged": true}},
        ]},
    });
    let on_every_node = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "stolen"},
        "spec": {"selector": {"matchLabels": {"name": "stolen"}}, "template": pods},
    });
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "stolen", "annotations": {"kubernetes.io/service-account.name": "nmstate-controller"}},
    });
    let mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
    let (in_nmstate, dry) = ("namespaces/nmstate", "dryRun=All");
    vec![
        Request::create(&format!("/apis/apps/v1/{in_nmstate}/daemonsets?{dry}"), on_every_node),
        Request::create(&format!("/api/v1/{in_nmstate}/secrets?{dry}"), token),
        Request::read(&format!("/api/v1/{in_nmstate}/secrets/nmstate-ca")),
        Request::merge(&format!("{ADMISSION}/mutatingwebhookconfigurations/nmstate?{dry}"), mark),
        Request::delete(&format!(
            "{ADMISSION}/validatingadmissionpolicybindings/nmstate-node-guard-states-binding?{dry}"
        )),
        Request::create(&format!("{ENACTMENTS}?{dry}"), enactment(OTHER, "stolen")),
        Request::delete(&format!("/apis/apps/v1/{in_nmstate}/deployments/unrelated?{dry}")),
        Request::delete(&format!("/apis/nmstate.io/v1/nmstates/nmstate?{dry}")),
        Request::read("/metrics"),
    ]
}

fn deployment(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"name": name}}, "template": {
            "metadata": {"labels": {"name": name}},
            "spec": {"containers": [{"name": name, "image": "any"}]},
        }},
    })
}
