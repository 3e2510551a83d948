//! What Prometheus and Grafana are told, where there is somebody to tell.

use anyhow::{Result, ensure};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_is_told_as_soon_as_it_can_be_and_keeps_being_told() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    cluster.switch_on(json!({})).await?;
    cluster.until_made().await?;
    let dashboard = ["get", "configmap", "kubernetes-nmstate-dashboard", "-n", NAMESPACE];
    ensure!(!cluster.api.kubectl(dashboard).await?.status.success(), "there is nobody to look at it yet");

    // Its operator is installed later than ours.
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
    cluster.switch_off().await?;
    for (kind, name) in names {
        ensure!(cluster.get(kind, name).await.is_err(), "{kind} {name} is left");
    }
    Ok(())
}
