//! The admission rules of policies and node states, as kubectl shows them: what the API server refuses without any
//! webhook, and with which messages.

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

/// Applies a policy. Returns the message if it was refused, else an empty string.
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

/// Sets the Available condition of a policy, in place of the controller.
async fn set_available(api: &ApiServer, name: &str, reason: &str) -> Result<()> {
    let condition = json!({"type": "Available", "status": "Unknown", "reason": reason});
    let status = json!({"status": {"conditions": [condition]}}).to_string();
    api.kubectl(["patch", "nncp", name, "--subresource=status", "--type=merge", "-p", &status])
        .await?
        .success()?;
    Ok(())
}

#[tokio::test]
async fn a_policy_in_progress_cannot_be_changed_without_the_annotation() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    let (none, allowed) = (json!({}), json!({"nmstate.io/allow-update-in-progress": "true"}));
    let in_progress = format!(
        "nodenetworkconfigurationpolicies.nmstate.io \"p\" is forbidden: {BY_POLICY_RULES}policy p is still in progress"
    );
    let refused = |refusal: &str| refusal.ends_with(&in_progress) && refusal.contains("(Forbidden)");
    let mut count = 0;
    let mut other = || {
        count += 1;
        json!({"maxUnavailable": count})
    };

    assert_eq!(policy(&api, "p", none.clone(), other()).await?, "", "created");
    let refusal = policy(&api, "p", none.clone(), other()).await?;
    ensure!(refused(&refusal), "it has no conditions yet: {refusal}");
    // Metadata can be changed at any time.
    assert_eq!(policy(&api, "p", json!({"note": "mine"}), json!({"maxUnavailable": 1})).await?, "");

    for (reason, is_refused) in [
        ("ConfigurationProgressing", true),
        ("", true),
        ("SuccessfullyConfigured", false),
        ("FailedToConfigure", false),
        ("NoMatchingNode", false),
    ] {
        set_available(&api, "p", reason).await?;
        let refusal = policy(&api, "p", none.clone(), other()).await?;
        ensure!(refused(&refusal) == is_refused && (is_refused || refusal.is_empty()), "{reason}: {refusal}");
    }
    set_available(&api, "p", "ConfigurationProgressing").await?;
    let wrong_value = json!({"nmstate.io/allow-update-in-progress": "yes"});
    let refusal = policy(&api, "p", wrong_value, other()).await?;
    ensure!(refused(&refusal), "{refusal}");
    assert_eq!(policy(&api, "p", allowed, other()).await?, "");
    api.kubectl(["delete", "nncp", "p"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn policies_are_refused_with_the_same_messages_under_either_definition() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    policies_are_refused(&api, "ours").await?;

    // The definition of kubernetes-nmstate, which has no rules.
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
        let refusal = policy(api, name, json!({}), spec.clone()).await?;
        let as_expected = if expected.is_empty() { refusal.is_empty() } else { refusal.ends_with(expected) };
        ensure!(as_expected, "with {definition} definition, {name} {spec}: {refusal}");
        // The message appears once, and the status code is 422, as with kubernetes-nmstate.
        ensure!(refusal.matches("invalid policy").count() <= 1, "{refusal}");
        ensure!(refusal.is_empty() || refusal.contains(" is invalid: "), "{refusal}");
        // Available, so that the next change is not refused because the policy is in progress.
        if refusal.is_empty() {
            set_available(api, name, "SuccessfullyConfigured").await?;
        }
    }
    api.kubectl(["delete", "nncp", "--all"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn a_node_is_configured_in_its_node_state_only_where_that_is_allowed() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    let state = |metadata: Value, spec: Value| {
        let mut state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "node1"}, "spec": spec});
        state["metadata"]["annotations"] = metadata;
        state
    };
    let desired = json!({"interfaces": [{"name": "eth1", "mtu": 9000}]});
    let other = json!({"interfaces": [{"name": "eth1", "mtu": 1500}]});
    let hint = "nodes of this cluster are configured by NodeNetworkConfigurationPolicies. To configure a single node in \
                its NodeNetworkState, set NMState.spec.allowNodeStateConfiguration to true first";
    let (no_managed, no_desired_state) = (
        format!("spec.managed cannot be set to true: {hint}"),
        format!("spec.desiredState cannot be set: {hint}"),
    );
    let check = async |what: &str, spec: &Value, expected: &str| {
        let refusal = apply(&api, &state(json!({"what": what}), spec.clone())).await?;
        let as_expected = if expected.is_empty() { refusal.is_empty() } else { refusal.ends_with(expected) };
        ensure!(as_expected, "{what}: {refusal}");
        Ok(())
    };
    check("created with a desired state", &json!({"desiredState": desired}), &no_desired_state).await?;
    check("created as managed", &json!({"managed": true}), &no_managed).await?;
    check("created", &json!({"nodeName": "node1", "managed": false}), "").await?;
    check("managed", &json!({"managed": true}), &no_managed).await?;
    check("with a desired state", &json!({"desiredState": desired}), &no_desired_state).await?;

    let rules = ["nns-validation-policy-binding", "nns-validation-policy"];
    api.kubectl(["delete", "validatingadmissionpolicybinding", rules[0]]).await?.success()?;
    api.kubectl(["delete", "validatingadmissionpolicy", rules[1]]).await?.success()?;
    let allowed = Settings { allow_node_state_configuration: true, ..Settings::default() };
    api.apply_product_objects(&allowed).await?;
    let both = json!({"managed": true, "desiredState": desired});
    wait::until(LIMIT, "the rule to be deleted", async || check("allowed", &both, "").await).await?;

    api.apply_product_objects(&Settings::default()).await?;
    check("an unchanged spec is accepted", &both, "").await?;
    check("another desired state", &json!({"managed": true, "desiredState": other}), &no_desired_state)
        .await?;
    check("managed can be removed", &json!({"desiredState": desired}), "").await?;
    check("managed cannot be set again", &both, &no_managed).await?;
    check("the desired state can be removed", &json!({"nodeName": "node1"}), "").await
}

#[tokio::test]
async fn dispatch_scripts_are_refused_unless_they_are_allowed() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    let hint = "spec.desiredState.interfaces[].dispatch cannot be set: its scripts would run as root on the nodes. To \
                allow that, set NMState.spec.allowDispatchScripts to true first";
    let desired = |dispatch: &Value| {
        let nic = json!({"name": "eth1", "dispatch": dispatch});
        json!({"interfaces": [{"name": "eth0", "mtu": 1500}, nic]})
    };
    let script = json!({"post-activation": "touch /x"});
    for (dispatch, is_refused) in [
        (&script, true),
        (&json!({"post-activation": "", "post-deactivation": "x"}), true),
        (&json!("{{ capture.c.interfaces.0.dispatch }}"), true),
        (&json!({"post-activation": ""}), false),
        (&json!({}), false),
    ] {
        let refusal = policy(&api, "p", json!({}), json!({"desiredState": desired(dispatch)})).await?;
        let as_expected = if is_refused { refusal.ends_with(hint) } else { refusal.is_empty() };
        ensure!(as_expected, "{dispatch}: {refusal}");
        ensure!(!is_refused || refusal.contains("(Forbidden)"), "{refusal}");
        if !is_refused {
            api.kubectl(["delete", "nncp", "p"]).await?.success()?;
        }
    }
    for spec in [
        json!({"desiredState": {"interfaces": "{{ capture.c.interfaces }}"}}),
        json!({"desiredState": {"routes": {}}}),
        json!({"maxUnavailable": 1}),
    ] {
        assert_eq!(policy(&api, "p", json!({}), spec).await?, "");
        api.kubectl(["delete", "nncp", "p"]).await?.success()?;
    }
    let allowing_states = Settings { allow_node_state_configuration: true, ..Settings::default() };
    for rules in ["nns-validation-policy-binding", "dispatch-validation-policy-binding"] {
        api.kubectl(["delete", "validatingadmissionpolicybinding", rules]).await?.success()?;
    }
    let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
        "metadata": {"name": "node1"}, "spec": {"desiredState": desired(&script)}});
    wait::until(LIMIT, "the rules to be deleted", async || {
        let refusal = apply(&api, &state).await?;
        ensure!(refusal.is_empty(), "{refusal}");
        Ok(())
    })
    .await?;
    let allowed = json!({"desiredState": desired(&script)});
    assert_eq!(policy(&api, "stored", json!({}), allowed.clone()).await?, "");
    api.apply_product_objects(&allowing_states).await?;
    let other = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
        "metadata": {"name": "node2"}, "spec": {"desiredState": desired(&script)}});
    let refusal = apply(&api, &other).await?;
    ensure!(refusal.ends_with(hint), "{refusal}");
    // One that is stored keeps its scripts.
    assert_eq!(policy(&api, "stored", json!({"note": "mine"}), allowed).await?, "");
    Ok(())
}

#[tokio::test]
async fn the_rules_pass_the_type_check_of_kubernetes() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().with_controllers().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(api.client());
    let selected = ListParams::default().labels("app=kubernetes-nmstate");
    let checked = wait::until(LIMIT, "the types in all expressions to be checked", async || {
        let policies = policies.list(&selected).await?.items;
        let statuses = policies.into_iter().map(|policy| policy.status.unwrap_or_default());
        let checked: Vec<_> = statuses.filter_map(|status| status.type_checking).collect();
        ensure!(checked.len() == 9, "{} of 9", checked.len());
        Ok(checked)
    })
    .await?;
    let warnings: Vec<_> =
        checked.into_iter().filter_map(|checked| checked.expression_warnings).flatten().collect();
    ensure!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}
