//! A cluster that kubernetes-nmstate has set up is taken over in place.

use anyhow::{Result, ensure};

use super::*;

/// A workload of kubernetes-nmstate, reduced to what matters: names, labels, selector, and owner.
fn workload(kind: &str, role: &str, owner: &Value) -> Value {
    let name = format!("nmstate-{role}");
    let labels =
        json!({"app": "kubernetes-nmstate", "component": format!("kubernetes-nmstate-{role}"), "name": name});
    let mut spec = json!({
        "selector": {"matchLabels": {"name": name}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": "nmstate-handler",
                "containers": [{
                    "name": name,
                    "image": "quay.io/nmstate/kubernetes-nmstate-handler:latest",
                    "command": ["manager"],
                    "securityContext": {"privileged": true},
                    "volumeMounts": [{"name": "theirs", "mountPath": "/theirs"}],
                }],
                "volumes": [{"name": "theirs", "emptyDir": {}}],
            },
        },
    });
    if kind == "Deployment" {
        spec["strategy"] = json!({"type": "Recreate"});
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]},
        "spec": spec,
    })
}

fn role(name: &str, owner: Option<&Value>) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    });
    if let Some(owner) = owner {
        role["metadata"]["ownerReferences"] = json!([owner]);
    }
    role
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_kubernetes_nmstate_are_taken_over_or_removed() -> Result<()> {
    let cluster = Installation::new().await?;
    cluster.api.kubectl(["create", "namespace", NAMESPACE]).await?.success()?;
    cluster.create_nmstate(json!({})).await?;
    let nmstate = cluster.get("nmstate", "nmstate").await?;
    let owner = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NMState",
        "name": "nmstate",
        "uid": nmstate["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let theirs = [
        workload("DaemonSet", "handler", &owner),
        workload("Deployment", "webhook", &owner),
        workload("Deployment", "metrics", &owner),
        workload("Deployment", "cert-manager", &owner),
        role("nmstate-handler", Some(&owner)),
        // It has the name of one of theirs, but another creator.
        role("nmstate-monitor", None),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": theirs});
    let apply = ["apply", "--server-side", "--field-manager=nmstate-operator", "-f", "-"];
    cluster.api.kubectl_with(&list.to_string(), apply).await?.success()?;
    let before = cluster.get("daemonset", "nmstate-handler").await?;

    let _operator = cluster.start()?;
    cluster.until_created().await?;
    cluster
        .until("the objects that are not used any more to be deleted", async || {
            let kinds = "deployments,roles";
            let left = cluster.api.kubectl(["get", kinds, "-n", NAMESPACE, "-o", "name"]).await?.success()?;
            for gone in
                ["nmstate-metrics", "nmstate-cert-manager", "role.rbac.authorization.k8s.io/nmstate-handler"]
            {
                ensure!(!left.contains(gone), "{gone} is still there: {left}");
            }
            ensure!(left.contains("nmstate-monitor"), "what is not ours is left alone: {left}");
            Ok(())
        })
        .await?;
    let after = cluster.get("daemonset", "nmstate-handler").await?;
    assert_eq!(
        after["metadata"]["uid"], before["metadata"]["uid"],
        "it was created again instead of taken over"
    );
    assert_eq!(after["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(after["spec"]["selector"], before["spec"]["selector"]);
    let pod = &after["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "localhost/knmstate:dev");
    assert_eq!(container["command"], Value::Null, "the image knows what to start");
    assert_eq!(container["securityContext"]["privileged"], false);
    ensure!(!pod["volumes"].to_string().contains("theirs"), "{}", pod["volumes"]);
    let webhook = cluster.get("deployment", "nmstate-webhook").await?;
    assert_eq!(webhook["spec"]["strategy"]["type"], "RollingUpdate");
    Ok(())
}
