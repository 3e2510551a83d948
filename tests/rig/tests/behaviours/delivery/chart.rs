//! The chart without a cluster: what it renders, and what it refuses.

use std::fs;

use anyhow::{Result, ensure};
use rig::{Lab, helm::chart};
use serde_json::{Value, json};

use super::{asset, objects};

const TEMPLATE: [&str; 5] = ["template", "knmstate", "--namespace=nmstate", "--include-crds", "--no-hooks"];

/// Removes names that are listed twice: without a prefix, a name and its prefixed form are the same.
fn without_repeated_names(object: &mut Value) {
    for rule in object["rules"].as_array_mut().into_iter().flatten() {
        if let Some(names) = rule["resourceNames"].as_array_mut() {
            let mut seen = Vec::new();
            names.retain(|name| {
                !seen.contains(name) && {
                    seen.push(name.clone());
                    true
                }
            });
            names.sort_by_key(ToString::to_string);
        }
    }
}

#[tokio::test]
async fn with_default_values_it_renders_the_plain_manifests() -> Result<()> {
    let lab = Lab::new().await?;
    let rendered = lab.helm(TEMPLATE.into_iter().chain([chart().as_str()])).await?.success()?;
    let mut rendered = objects(&rendered)?;
    let mut plain = objects(&fs::read_to_string(asset(&lab, "knmstate.yaml")?)?)?;
    // Helm creates the namespace of a release itself.
    ensure!(plain.remove("Namespace /nmstate").is_some(), "{:?}", plain.keys());
    assert_eq!(rendered.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
    for (name, object) in &mut rendered {
        without_repeated_names(object);
        let expected = plain.get_mut(name).map(|expected| {
            without_repeated_names(expected);
            expected.clone()
        });
        assert_eq!(Some(object.clone()), expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn values_are_rendered() -> Result<()> {
    let lab = Lab::new().await?;
    let values = [
        "--set=prefix=x,handlerNamespace=handlers,image.repository=registry.local:5000/knmstate,image.tag=1.2",
        "--set=nmstate.create=true,nmstate.spec.logLevel=debug,autoCreate.mode=never,retries.max=7",
        "--set=imagePullSecrets[0].name=key,nodeSelector.disk=ssd,removal.timeoutSeconds=1000000",
        "--set=autoCreate.platforms={BareMetal,None}",
    ];
    let arguments = ["template", "knmstate", "--namespace=operators"].into_iter().chain(values);
    let rendered = objects(&lab.helm(arguments.chain([chart().as_str()])).await?.success()?)?;
    for (name, object) in &rendered {
        let ours = name.contains("/x-nmstate-") || name.contains("/x-default-") || name.contains("/x-allow-");
        ensure!(ours || name == "NMState /nmstate", "without the prefix: {object}");
    }
    assert_eq!(rendered["NMState /nmstate"]["spec"], json!({"logLevel": "debug"}));
    ensure!(rendered.contains_key("Role handlers/x-nmstate-operator-operands"), "{:?}", rendered.keys());
    let operator = &rendered["Deployment operators/x-nmstate-operator"]["spec"]["template"]["spec"];
    assert_eq!(operator["nodeSelector"]["disk"], "ssd");
    assert_eq!(operator["imagePullSecrets"], json!([{"name": "key"}]));
    let container = &operator["containers"][0];
    assert_eq!(container["image"], "registry.local:5000/knmstate:1.2");
    for (name, value) in [
        ("HANDLER_NAMESPACE", "handlers"),
        ("HANDLER_PREFIX", "x"),
        ("RELATED_IMAGE_HANDLER_IMAGE", "registry.local:5000/knmstate:1.2"),
        ("AUTO_CREATE", "never"),
        ("AUTO_CREATE_PLATFORMS", "BareMetal,None"),
        ("NNCP_MAX_RETRIES", "7"),
    ] {
        let environment = container["env"].as_array().into_iter().flatten();
        let found = environment.clone().find(|variable| variable["name"] == *name);
        assert_eq!(found.map(|variable| &variable["value"]), Some(&json!(value)), "{name}");
    }
    let job = &rendered["Job operators/x-nmstate-remover"]["spec"];
    assert_eq!(job["activeDeadlineSeconds"], 1_000_060);
    let arguments = &job["template"]["spec"]["containers"][0]["args"];
    assert_eq!(arguments, &json!(["remove", "--timeout", "1000000"]));
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_refused_with_the_reason() -> Result<()> {
    let lab = Lab::new().await?;
    for (value, place, reason) in [
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'", "'IfNotPresent'"),
        ("image.repo=x", "at '/image'", "additional properties 'repo' not allowed"),
        ("replicas=2", "at ''", "additional properties 'replicas' not allowed"),
        ("nmstate.create=yes", "at '/nmstate/create'", "got string, want boolean"),
        ("retries.max=-1", "at '/retries/max'", "minimum: got -1, want 0"),
        ("handlerNamespace=Not_A_Name", "at '/handlerNamespace'", "does not match pattern"),
        ("autoCreate.mode=sometimes", "at '/autoCreate/mode'", "'never'"),
        ("tolerations=all", "at '/tolerations'", "got string, want array"),
    ] {
        let set = format!("--set={value}");
        let answer = lab.helm(["template", "knmstate", &set, &chart()]).await?;
        ensure!(!answer.status.success(), "{value} was accepted");
        let errors = answer.stderr();
        ensure!(errors.contains(place) && errors.contains(reason), "{value}: {errors}");
    }
    Ok(())
}

#[tokio::test]
async fn helm_lint_passes() -> Result<()> {
    let lab = Lab::new().await?;
    lab.helm(["lint", "--strict", &chart()]).await?.success()?;
    lab.helm(["lint", "--strict", "--set=nmstate.create=true,prefix=x", &chart()]).await?.success()?;
    Ok(())
}
