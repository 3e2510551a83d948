//! Every field of an NMState takes effect, also when it is changed later.

use anyhow::{Result, ensure};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_an_nmstate_takes_effect() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    let toleration = json!([{"key": "special", "operator": "Exists"}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}],
    }}});
    cluster
        .create_nmstate(json!({
            "nodeSelector": {"role": "handler"},
            "tolerations": toleration,
            "affinity": affinity,
            "infraNodeSelector": {"role": "infra"},
            "infraTolerations": toleration,
            "infraAffinity": affinity,
            "probeConfiguration": {"dns": {"host": "ns.example.org"}},
            "metricsConfiguration": {"bindAddress": ":9100"},
            "logLevel": "debug",
            "persistence": "Ephemeral",
        }))
        .await?;
    let created = cluster.until_created().await?;
    for rules in ["nns-validation-policy", "dispatch-validation-policy"] {
        ensure!(created.contains(&*format!("ValidatingAdmissionPolicy /{rules}")), "{created:#?}");
    }

    let handler = cluster.get("daemonset", "nmstate-handler").await?["spec"]["template"]["spec"].clone();
    assert_eq!(handler["nodeSelector"], json!({"role": "handler"}));
    assert_eq!(handler["tolerations"], toleration);
    assert_eq!(handler["affinity"], affinity);
    let container = &handler["containers"][0];
    assert_eq!(container["args"], json!(["handler", "--v", "debug"]));
    assert_eq!(variable(container, "PROBE_DNS_HOST"), Some("ns.example.org"));
    assert_eq!(variable(container, "NMSTATE_PERSISTENCE"), Some("Ephemeral"));
    assert_eq!(variable(container, "NNCP_MAX_RETRIES"), Some("5"));
    assert_eq!(variable(container, "NMSTATE_ALLOW_DISPATCH_SCRIPTS"), None);
    assert_eq!(container["securityContext"]["privileged"], false);

    let controller = cluster.get("deployment", "nmstate-webhook").await?["spec"]["template"]["spec"].clone();
    assert_eq!(controller["nodeSelector"], json!({"role": "infra"}));
    assert_eq!(controller["tolerations"], toleration);
    assert_eq!(controller["affinity"], affinity);
    assert_eq!(variable(&controller["containers"][0], "METRICS_BIND_ADDRESS"), Some(":9100"));
    let service = cluster.get("service", "nmstate-monitor").await?;
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["spec"]["ports"][0]["targetPort"]),
        (&json!(8443), &json!(9100))
    );

    let change = json!({"spec": {
        "logLevel": "info",
        "metricsConfiguration": {"bindAddress": "0"},
        "nodeSelector": null,
        "allowNodeStateConfiguration": true,
        "allowDispatchScripts": true,
    }});
    let patch = ["patch", "nmstate", "nmstate", "--type=merge", "-p", &change.to_string()];
    cluster.api.kubectl(patch).await?.success()?;
    cluster
        .until("the change to take effect", async || {
            let handler =
                cluster.get("daemonset", "nmstate-handler").await?["spec"]["template"]["spec"].clone();
            ensure!(
                handler["containers"][0]["args"] == json!(["handler"]),
                "{}",
                handler["containers"][0]["args"]
            );
            ensure!(
                handler["nodeSelector"] == json!({"kubernetes.io/os": "linux"}),
                "{}",
                handler["nodeSelector"]
            );
            let allowed = variable(&handler["containers"][0], "NMSTATE_ALLOW_DISPATCH_SCRIPTS");
            ensure!(allowed == Some("true"), "{allowed:?}");
            let created = cluster.created().await?;
            for gone in [
                "Service nmstate/nmstate-monitor",
                "ValidatingAdmissionPolicy /nns-validation-policy",
                "ValidatingAdmissionPolicy /dispatch-validation-policy",
            ] {
                ensure!(!created.contains(gone), "{gone} is still there");
            }
            Ok(())
        })
        .await
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array()?;
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}
