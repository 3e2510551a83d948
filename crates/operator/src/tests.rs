//! Properties of all objects together.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::*;

fn prefixed() -> Settings {
    Settings { namespace: "elsewhere".to_owned(), prefix: Some("x".to_owned()), ..Settings::default() }
}

fn rules_of(object: &Object) -> &[PolicyRule] {
    let rules = match object {
        Object::ClusterRole(role) => &role.rules,
        Object::Role(role) => &role.rules,
        _ => &None,
    };
    rules.as_deref().unwrap_or_default()
}

#[test]
fn every_object_is_there_once_and_says_what_it_is() {
    for settings in [Settings::default(), prefixed()] {
        let objects = cluster_objects(&settings);
        let mut seen = BTreeSet::new();
        for object in &objects {
            let written = serde_json::to_value(object).unwrap();
            assert_eq!(written["apiVersion"], object.api_version());
            assert_eq!(written["kind"], object.kind());
            assert_eq!(written["metadata"]["labels"]["app"], "kubernetes-nmstate", "{written}");
            assert!(seen.insert((object.kind(), object.namespace(), object.name())), "twice: {written}");
        }
        assert!(objects.len() > 20, "{}", objects.len());
    }
}

#[test]
fn nothing_of_an_installation_with_a_prefix_is_called_like_one_without() {
    let names = |settings: &Settings| -> BTreeSet<_> {
        let objects = cluster_objects(settings).into_iter();
        let named = objects
            .map(|object| (object.kind(), object.namespace().map(str::to_owned), object.name().to_owned()));
        named.collect()
    };
    assert_eq!(names(&Settings::default()).intersection(&names(&prefixed())).count(), 0);
    let written = serde_json::to_string(&cluster_objects(&prefixed())).unwrap();
    assert!(written.contains("system:serviceaccount:elsewhere:x-nmstate-handler"), "{written}");
    for other in ["\"nmstate-", "\"nmstate\""] {
        assert!(!written.contains(other), "{other} in {written}");
    }
}

#[test]
fn no_role_can_make_itself_more_powerful() {
    for object in cluster_objects(&Settings::default()) {
        for rule in rules_of(&object) {
            let words =
                [&rule.api_groups, &rule.resources].into_iter().flatten().flatten().chain(&rule.verbs);
            for word in words {
                assert!(
                    !["*", "bind", "escalate", "impersonate", "rbac.authorization.k8s.io"].contains(&&**word),
                    "{}: {rule:?}",
                    object.name()
                );
            }
            let of_secrets = rule.resources.iter().flatten().any(|resource| resource == "secrets");
            if of_secrets && rule.verbs != ["create"] {
                assert!(rule.resource_names.is_some(), "{}: {rule:?}", object.name());
                assert_eq!(object.namespace(), Some("nmstate"));
            }
        }
    }
}

#[test]
fn a_controller_writes_webhook_configurations_only_where_it_has_to_inject_the_bundle() {
    let verbs = |controller_injects_ca_bundle| -> BTreeSet<String> {
        let settings = Settings { controller_injects_ca_bundle, ..Settings::default() };
        let objects = cluster_objects(&settings);
        let rules = objects.iter().flat_map(rules_of).filter(|rule| {
            rule.resources.iter().flatten().any(|resource| resource.ends_with("webhookconfigurations"))
        });
        rules
            .inspect(|rule| assert_eq!(rule.resource_names, Some(vec!["nmstate".to_owned()]), "{rule:?}"))
            .flat_map(|rule| rule.verbs.clone())
            .collect()
    };
    let read = BTreeSet::from(["get", "list", "watch"].map(str::to_owned));
    assert_eq!(verbs(false), read);
    assert_eq!(verbs(true).difference(&read).collect::<Vec<_>>(), ["patch"]);
}

#[test]
fn a_handler_reads_and_reports_and_nothing_else() {
    let objects = cluster_objects(&Settings::default());
    let handlers = objects.iter().filter(|object| object.name() == "nmstate-handler");
    let mut rights: Vec<String> = handlers
        .flat_map(rules_of)
        .map(|rule| {
            format!(
                "{} {}",
                rule.resources.iter().flatten().cloned().collect::<String>(),
                rule.verbs.join(",")
            )
        })
        .collect();
    rights.sort();
    assert_eq!(
        rights,
        [
            "leases get",
            "nodenetworkconfigurationenactments list,watch",
            "nodenetworkconfigurationenactments/status patch",
            "nodenetworkstates list,watch,create,patch",
            "nodenetworkstates/status patch",
            "nodes get",
        ]
    );
}

#[test]
fn guards_stand_before_the_rights_that_they_narrow() {
    let objects = cluster_objects(&Settings::default());
    let first = |kind: &str| objects.iter().position(|object| object.kind() == kind).unwrap();
    let last = |kind: &str| objects.iter().rposition(|object| object.kind() == kind).unwrap();
    assert_eq!(first("Namespace"), 0);
    assert!(last("ValidatingAdmissionPolicyBinding") < first("ClusterRole"));
}

#[test]
fn each_switch_takes_its_rule_away() {
    let names = |settings: &Settings| -> Vec<String> {
        cluster_objects(settings).iter().map(|object| object.name().to_owned()).collect()
    };
    let refused = names(&Settings::default());
    for (rules, settings) in [
        ("nns-validation-policy", Settings { allow_node_state_configuration: true, ..Settings::default() }),
        ("dispatch-validation-policy", Settings { allow_dispatch_scripts: true, ..Settings::default() }),
    ] {
        let allowed = names(&settings);
        let gone: Vec<_> = refused.iter().filter(|name| !allowed.contains(name)).collect();
        assert_eq!(gone, [rules, &format!("{rules}-binding")]);
        assert!(allowed.iter().all(|name| refused.contains(name)));
    }
}

#[test]
fn handlers_allow_scripts_only_where_the_nmstate_does() {
    let container = |spec: serde_json::Value| {
        let config = installation::default_config("image");
        let spec = serde_json::from_value(spec).unwrap();
        let groups = operands::operands(&config, &spec, &crate::cluster::ClusterInfo::default());
        let handler = groups.into_iter().find(|group| group.name == "handler").unwrap();
        serde_json::to_value(&handler.objects[0]).unwrap()
    };
    let mut allowed = container(serde_json::json!({ "allowDispatchScripts": true }));
    let variables = allowed["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    let position = variables.iter().position(|one| one["name"] == "NMSTATE_ALLOW_DISPATCH_SCRIPTS").unwrap();
    assert_eq!(variables.remove(position)["value"], "true");
    assert_eq!(allowed, container(serde_json::json!({})), "the setting changes nothing else");
}
