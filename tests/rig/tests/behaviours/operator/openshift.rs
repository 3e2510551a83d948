//! What differs on OpenShift: the certificates, the TLS profile, and the rights of cluster readers.

use anyhow::{Result, ensure};

use super::{ca_bundle::certificate, *};

fn api_server(profile: &Value) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "APIServer",
        "metadata": {"name": "cluster"},
        "spec": {"tlsSecurityProfile": profile},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn on_openshift_its_own_services_are_used() -> Result<()> {
    let cluster = Installation::new().await?;
    for (group, kind, plural) in [
        ("security.openshift.io", "SecurityContextConstraints", "securitycontextconstraints"),
        ("config.openshift.io", "APIServer", "apiservers"),
    ] {
        cluster.define(group, kind, plural, "Cluster").await?;
    }
    cluster.apply(&api_server(&json!({"type": "Modern", "modern": {}}))).await?;
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "cluster-reader"},
        "aggregationRule": {"clusterRoleSelectors": [
            {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-cluster-reader": "true"}},
        ]},
    });
    cluster.apply(&reader).await?;
    let _operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    cluster.until_created().await?;

    let controller = cluster.get("deployment", "nmstate-webhook").await?["spec"]["template"]["spec"].clone();
    let container = &controller["containers"][0];
    let args = container["args"].to_string();
    ensure!(args.contains("--certificate-dir=") && args.contains("--tls-profile="), "{args}");
    assert_eq!(controller["volumes"][0]["secret"]["secretName"], "openshift-nmstate-webhook");
    assert_eq!(container["securityContext"]["runAsUser"], Value::Null, "OpenShift chooses the user");
    let service = cluster.get("service", "nmstate-webhook").await?;
    let secret = &service["metadata"]["annotations"]["service.beta.openshift.io/serving-cert-secret-name"];
    assert_eq!(secret, "openshift-nmstate-webhook");
    let namespace = cluster.get("namespace", NAMESPACE).await?["metadata"].clone();
    assert_eq!(namespace["annotations"]["openshift.io/node-selector"], "");
    let role = cluster.get("clusterrole", "nmstate-handler").await?["rules"].to_string();
    ensure!(role.contains("securitycontextconstraints"), "{role}");
    let handler = cluster.get("daemonset", "nmstate-handler").await?["spec"]["template"]["spec"].clone();
    assert_eq!(handler["containers"][0]["securityContext"]["seLinuxOptions"]["type"], "spc_t");

    let profile = cluster.get("configmap", "nmstate-tls-config").await?["data"]["profile.json"].clone();
    ensure!(text(&profile).contains("VersionTLS13"), "{profile}");
    cluster
        .until("cluster readers to be able to read node states", async || {
            let may = ["auth", "can-i", "list", "nodenetworkstates", "--as=reader"];
            cluster
                .api
                .kubectl([
                    "create",
                    "clusterrolebinding",
                    "reader",
                    "--clusterrole=cluster-reader",
                    "--user=reader",
                ])
                .await?;
            cluster.api.kubectl(may).await?.success()?;
            Ok(())
        })
        .await?;

    // service-ca sets the bundle of the webhooks, and the operator leaves it alone.
    let theirs = r#"[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "dGhlaXJz"}]"#;
    let patch = ["patch", "validatingwebhookconfiguration", "nmstate", "--type=json", "-p", theirs];
    cluster.api.kubectl(patch).await?.success()?;
    cluster.publish(&certificate()?).await?;

    // A profile that is supported only in part is applied as far as possible.
    let partly = json!({"type": "Old", "old": {}});
    cluster.apply(&api_server(&partly)).await?;
    cluster
        .until("the new profile", async || {
            let profile =
                cluster.get("configmap", "nmstate-tls-config").await?["data"]["profile.json"].clone();
            ensure!(text(&profile).contains("VersionTLS12"), "{profile}");
            Ok(())
        })
        .await?;
    let null = Value::Null;
    assert_eq!(cluster.ca_bundles().await?, [null.clone(), null.clone(), null, json!("dGhlaXJz")]);
    Ok(())
}
