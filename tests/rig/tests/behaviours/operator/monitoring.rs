//! The objects for Prometheus and Grafana, in clusters that have the kinds of the Prometheus operator.

use anyhow::{Result, ensure};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn monitoring_objects_are_created_as_soon_as_their_kinds_exist_and_are_restored() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    cluster.until_created().await?;
    let dashboard = ["get", "configmap", "kubernetes-nmstate-dashboard", "-n", NAMESPACE];
    ensure!(
        !cluster.api.kubectl(dashboard).await?.status.success(),
        "there is a dashboard without Prometheus"
    );

    // The Prometheus operator is installed later than ours.
    for (kind, plural) in [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")] {
        cluster.define("monitoring.coreos.com", kind, plural, "Namespaced").await?;
    }
    let names = [
        ("servicemonitor", "controller-manager-metrics-monitor"),
        ("prometheusrule", "kubernetes-nmstate-prometheus-rules"),
        ("configmap", "kubernetes-nmstate-dashboard"),
    ];
    for (kind, name) in names {
        cluster.until(&format!("{kind} {name}"), async || cluster.get(kind, name).await).await?;
    }
    let rules = cluster.get("prometheusrule", "kubernetes-nmstate-prometheus-rules").await?;
    let alerts = rules["spec"]["groups"][0]["rules"].as_array().context("alerts")?;
    ensure!(alerts.iter().all(|alert| alert["annotations"]["runbook_url"].is_string()), "{rules:#}");

    for (kind, name) in names {
        let before = cluster.get(kind, name).await?["metadata"]["uid"].clone();
        cluster.api.kubectl(["delete", kind, name, "-n", NAMESPACE]).await?.success()?;
        cluster
            .until(&format!("{kind} {name} to be back"), async || {
                let now = cluster.get(kind, name).await?["metadata"]["uid"].clone();
                ensure!(now != before, "it is still the old one");
                Ok(())
            })
            .await?;
    }
    cluster.delete_nmstate().await?;
    for (kind, name) in names {
        ensure!(cluster.get(kind, name).await.is_err(), "{kind} {name} is left");
    }
    Ok(())
}
