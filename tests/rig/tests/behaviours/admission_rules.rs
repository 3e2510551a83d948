//! What the API server refuses by itself, without any webhook, and in which words: the rules of policies and of node
//! states as a user of kubectl meets them.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::admissionregistration::v1::ValidatingAdmissionPolicy,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use rig::{ApiServer, Lab, Settings, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const BY_POLICY_RULES: &str = "ValidatingAdmissionPolicy 'nncp-validation-policy' with binding 'nncp-validation-policy-binding' denied request: ";

/// Applies a policy and returns why it was refused; nothing if it was not.
async fn policy(api: &ApiServer, name: &str, annotations: Value, spec: Value) -> Result<String> {
    let manifest = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    });
    apply(api, &manifest).await
}

async fn apply(api: &ApiServer, manifest: &Value) -> Result<String> {
    let answer = api.kubectl_with(&manifest.to_string(), ["apply", "--server-side", "-f", "-"]).await?;
    let refusal = answer.stderr().trim().to_owned();
    ensure!(answer.status.success() == refusal.is_empty(), "{refusal}");
    Ok(refusal)
}

/// Says of a policy how far it is, in place of the controller.
async fn available(api: &ApiServer, name: &str, reason: &str) -> Result<()> {
    let condition = json!({"type": "Available", "status": "Unknown", "reason": reason});
    let status = json!({"status": {"conditions": [condition]}}).to_string();
    api.kubectl(["patch", "nncp", name, "--subresource=status", "--type=merge", "-p", &status])
        .await?
        .success()?;
    Ok(())
}

#[tokio::test]
async fn a_policy_in_progress_is_left_alone_unless_its_author_insists() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.admit_product(&Settings::default()).await?;
    let (none, insists) = (json!({}), json!({"nmstate.io/allow-update-in-progress": "true"}));
    let in_progress = format!(
        "nodenetworkconfigurationpolicies.nmstate.io \"p\" is forbidden: {BY_POLICY_RULES}policy p is still in progress"
    );
    let refused = |refusal: &str| refusal.ends_with(&in_progress) && refusal.contains("(Forbidden)");
    let mut count = 0;
    let mut other = || {
        count += 1;
        json!({"maxUnavailable": count})
    };

    assert_eq!(policy(&api, "p", none.clone(), other()).await?, "", "made");
    let refusal = policy(&api, "p", none.clone(), other()).await?;
    ensure!(refused(&refusal), "nobody has reported on it: {refusal}");
    // What is not the spec can be changed at any time.
    assert_eq!(policy(&api, "p", json!({"note": "mine"}), json!({"maxUnavailable": 1})).await?, "");

    for (reason, is_refused) in [
        ("ConfigurationProgressing", true),
        ("", true),
        ("SuccessfullyConfigured", false),
        ("FailedToConfigure", false),
        ("NoMatchingNode", false),
    ] {
        available(&api, "p", reason).await?;
        let refusal = policy(&api, "p", none.clone(), other()).await?;
        ensure!(refused(&refusal) == is_refused && (is_refused || refusal.is_empty()), "{reason}: {refusal}");
    }
    available(&api, "p", "ConfigurationProgressing").await?;
    let in_vain = json!({"nmstate.io/allow-update-in-progress": "yes"});
    let refusal = policy(&api, "p", in_vain, other()).await?;
    ensure!(refused(&refusal), "{refusal}");
    assert_eq!(policy(&api, "p", insists, other()).await?, "");
    api.kubectl(["delete", "nncp", "p"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn policies_are_refused_in_the_same_words_with_either_definition() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.admit_product(&Settings::default()).await?;
    policies_are_refused(&api, "ours").await?;

    // As a cluster has it that was made by kubernetes-nmstate: without rules of its own.
    let definitions: Api<CustomResourceDefinition> = Api::all(api.client());
    let name = "nodenetworkconfigurationpolicies.nmstate.io";
    let mut definition = serde_json::to_value(definitions.get(name).await?)?;
    remove_rules(&mut definition);
    definition["metadata"] = json!({"name": name});
    definition["status"] = Value::Null;
    let owner = PatchParams::apply("kubectl").force();
    definitions.patch(name, &owner, &Patch::Apply(&definition)).await?;
    wait::until(LIMIT, "the definition without rules to be served", async || {
        let refusal = policy(&api, &"x".repeat(64), json!({}), json!({})).await?;
        ensure!(refusal.contains(BY_POLICY_RULES), "{refusal}");
        Ok(())
    })
    .await?;
    policies_are_refused(&api, "kubernetes-nmstate's").await
}

fn remove_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(remove_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        _ => {}
    }
}

async fn policies_are_refused(api: &ApiServer, definition: &str) -> Result<()> {
    let long = "x".repeat(64);
    let too_long = format!(
        "invalid policy name: \"{long}\": must be no more than 63 characters or match label value format"
    );
    let reserved = "invalid policy name: \"node-network-state\": is reserved for what the NodeNetworkState of a node \
                    asks for; choose another name";
    let values = "nodeSelector values must be valid label values";
    let captures = "invalid policy operation: capture field cannot be modified";
    let captured = json!({"capture": {"a": "interfaces.name==\"eth1\""}});
    for (name, spec, expected) in [
        (&*"y".repeat(63), json!({}), ""),
        (&*long, json!({}), &*too_long),
        ("node-network-state", json!({}), reserved),
        ("n", json!({"nodeSelector": {"a": "b c"}}), values),
        ("n", json!({"nodeSelector": {"a": "b"}}), ""),
        ("c", captured.clone(), ""),
        ("c", json!({"capture": {"a": "interfaces.name==\"eth2\""}}), captures),
        ("c", json!({"maxUnavailable": 1}), captures),
        ("c", json!({"capture": captured["capture"], "maxUnavailable": 3}), ""),
    ] {
        // The controller's word, so that every change of a spec is judged by what it changes.
        let refusal = policy(api, name, json!({}), spec.clone()).await?;
        let as_expected = if expected.is_empty() { refusal.is_empty() } else { refusal.ends_with(expected) };
        ensure!(as_expected, "with {definition} definition, {name} {spec}: {refusal}");
        // The message is given once, and the answer is 422 as ever.
        ensure!(refusal.matches("invalid policy").count() <= 1, "{refusal}");
        ensure!(refusal.is_empty() || refusal.contains(" is invalid: "), "{refusal}");
        if refusal.is_empty() {
            available(api, name, "SuccessfullyConfigured").await?;
        }
    }
    api.kubectl(["delete", "nncp", "--all"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn a_node_is_configured_in_its_node_state_only_where_that_is_allowed() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.admit_product(&Settings::default()).await?;
    let state = |metadata: Value, spec: Value| {
        let mut state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "node1"}, "spec": spec});
        state["metadata"]["annotations"] = metadata;
        state
    };
    let wish = json!({"interfaces": [{"name": "eth1", "mtu": 9000}]});
    let other = json!({"interfaces": [{"name": "eth1", "mtu": 1500}]});
    let hint = "nodes of this cluster are configured by NodeNetworkConfigurationPolicies. To configure a single node in \
                its NodeNetworkState, set NMState.spec.allowNodeStateConfiguration to true first";
    let (no_managing, no_wishes) = (
        format!("spec.managed cannot be set to true: {hint}"),
        format!("spec.desiredState cannot be set: {hint}"),
    );
    let check = async |what: &str, spec: &Value, expected: &str| {
        let refusal = apply(&api, &state(json!({"what": what}), spec.clone())).await?;
        let as_expected = if expected.is_empty() { refusal.is_empty() } else { refusal.ends_with(expected) };
        ensure!(as_expected, "{what}: {refusal}");
        Ok(())
    };
    check("made with a wish", &json!({"desiredState": wish}), &no_wishes).await?;
    check("made as managed", &json!({"managed": true}), &no_managing).await?;
    check("made", &json!({"nodeName": "node1", "managed": false}), "").await?;
    check("managed", &json!({"managed": true}), &no_managing).await?;
    check("with a wish", &json!({"desiredState": wish}), &no_wishes).await?;

    let rules = ["nns-validation-policy-binding", "nns-validation-policy"];
    api.kubectl(["delete", "validatingadmissionpolicybinding", rules[0]]).await?.success()?;
    api.kubectl(["delete", "validatingadmissionpolicy", rules[1]]).await?.success()?;
    let allowed = Settings { allow_node_state_configuration: true, ..Settings::default() };
    api.apply_product(&allowed).await?;
    let both = json!({"managed": true, "desiredState": wish});
    wait::until(LIMIT, "the rule to be gone", async || check("allowed", &both, "").await).await?;

    api.apply_product(&Settings::default()).await?;
    check("what is there stays", &both, "").await?;
    check("and may not become another", &json!({"managed": true, "desiredState": other}), &no_wishes).await?;
    check("but may go", &json!({"desiredState": wish}), "").await?;
    check("once gone it stays away", &both, &no_managing).await?;
    check("all of it", &json!({"nodeName": "node1"}), "").await
}

#[tokio::test]
async fn the_rules_are_sound_in_the_eyes_of_kubernetes() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().with_controllers().start().await?;
    api.admit_product(&Settings::default()).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(api.client());
    let selected = ListParams::default().labels("app=kubernetes-nmstate");
    let checked = wait::until(LIMIT, "the types in all expressions to be checked", async || {
        let policies = policies.list(&selected).await?.items;
        let statuses = policies.into_iter().map(|policy| policy.status.unwrap_or_default());
        let checked: Vec<_> = statuses.filter_map(|status| status.type_checking).collect();
        ensure!(checked.len() == 4, "{} of 4", checked.len());
        Ok(checked)
    })
    .await?;
    let warnings: Vec<_> =
        checked.into_iter().filter_map(|checked| checked.expression_warnings).flatten().collect();
    ensure!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}
