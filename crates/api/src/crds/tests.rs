//! What existing users and their tools rely on.

use std::sync::LazyLock;

use serde_json::Value;

use super::*;

/// Built once, because it takes time.
static ALL: LazyLock<[CustomResourceDefinition; 4]> = LazyLock::new(all);

fn definition(plural: &str) -> &'static CustomResourceDefinition {
    ALL.iter().find(|definition| definition.spec.names.plural == plural).unwrap()
}

fn json(definition: &CustomResourceDefinition) -> Value {
    serde_json::to_value(definition).unwrap()
}

/// The schema of a version, down a path of properties.
fn schema(definition: &CustomResourceDefinition, version: &str, path: &str) -> Value {
    let versions = json(definition)["spec"]["versions"].clone();
    let found = versions.as_array().unwrap().iter().find(|candidate| candidate["name"] == version).unwrap();
    let root = found["schema"]["openAPIV3Schema"].clone();
    path.split('.').filter(|step| !step.is_empty()).fold(root, |schema, step| {
        let next = schema["properties"][step].clone();
        assert!(!next.is_null(), "no property {step} of {path} in {version}");
        next
    })
}

/// Every schema in a schema, with its path.
fn walk<'a>(schema: &'a Value, path: &str, visit: &mut dyn FnMut(&str, &'a Value)) {
    visit(path, schema);
    if let Some(fields) = schema["properties"].as_object() {
        for (name, field) in fields {
            walk(field, &format!("{path}.{name}"), visit);
        }
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            walk(&schema[key], &format!("{path}{suffix}"), visit);
        }
    }
}

fn each_version(mut check: impl FnMut(&str, &Value)) {
    for definition in &*ALL {
        let definition = json(definition);
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
            let name = format!("{kind} {}", version["name"].as_str().unwrap());
            check(&name, &version["schema"]["openAPIV3Schema"]);
        }
    }
}

#[test]
fn names() {
    let rows = [
        ("nmstates", "nmstate", "NMState", None),
        (
            "nodenetworkconfigurationenactments",
            "nodenetworkconfigurationenactment",
            "NodeNetworkConfigurationEnactment",
            Some("nnce"),
        ),
        (
            "nodenetworkconfigurationpolicies",
            "nodenetworkconfigurationpolicy",
            "NodeNetworkConfigurationPolicy",
            Some("nncp"),
        ),
        ("nodenetworkstates", "nodenetworkstate", "NodeNetworkState", Some("nns")),
    ];
    for (definition, (plural, singular, kind, short)) in ALL.clone().into_iter().zip(rows) {
        let spec = definition.spec;
        assert_eq!(definition.metadata.name, Some(format!("{plural}.nmstate.io")));
        assert_eq!((spec.group.as_str(), spec.scope.as_str()), ("nmstate.io", "Cluster"));
        assert_eq!(spec.names.plural, plural);
        assert_eq!(spec.names.singular.as_deref(), Some(singular));
        assert_eq!(spec.names.kind, kind);
        assert_eq!(spec.names.list_kind, Some(format!("{kind}List")));
        assert_eq!(spec.names.short_names, short.map(|name| vec![name.to_owned()]));
        assert_eq!(spec.names.categories, None);
        assert_eq!(spec.conversion.map(|conversion| conversion.strategy).as_deref(), Some("None"));
        assert_eq!((definition.metadata.annotations, definition.metadata.labels), (None, None));
    }
}

#[test]
fn versions() {
    // Kind, version, stored, deprecated, with what warning.
    let rows = [
        ("NMState", "v1", true, false, None),
        ("NMState", "v1beta1", false, true, Some("nmstate/v1beta1 deprecated, use nmstate/v1 instead")),
        ("NodeNetworkConfigurationEnactment", "v1", false, false, None),
        ("NodeNetworkConfigurationEnactment", "v1beta1", true, false, None),
        ("NodeNetworkConfigurationPolicy", "v1", true, false, None),
        ("NodeNetworkConfigurationPolicy", "v1beta1", false, true, None),
        ("NodeNetworkState", "v1", false, false, None),
        ("NodeNetworkState", "v1beta1", true, false, None),
    ];
    let versions: Vec<_> = ALL
        .iter()
        .flat_map(|definition| {
            definition.spec.versions.iter().map(|version| (&*definition.spec.names.kind, version))
        })
        .collect();
    assert_eq!(versions.len(), rows.len());
    for ((kind, version), row) in versions.into_iter().zip(rows) {
        let warning = version.deprecation_warning.as_deref();
        assert_eq!(
            (kind, &*version.name, version.storage, version.deprecated.unwrap_or(false), warning),
            row
        );
        assert!(version.served);
        let status = version.subresources.as_ref().and_then(|subresources| subresources.status.as_ref());
        assert!(status.is_some(), "{kind} {} has no status subresource", version.name);
    }
}

#[test]
fn clients_use_the_stored_version() {
    fn check<Kind: Resource<DynamicType = ()> + CustomResourceExt>() {
        let stored = Kind::crd().spec.versions.into_iter().find(|version| version.storage).unwrap();
        let resource = Kind::api_resource();
        assert_eq!(resource.version, stored.name);
        assert_eq!(resource.api_version, format!("nmstate.io/{}", stored.name));
        assert_eq!(resource.plural, Kind::crd().spec.names.plural);
    }
    check::<NMState>();
    check::<NodeNetworkConfigurationPolicy>();
    check::<NodeNetworkConfigurationEnactment>();
    check::<NodeNetworkState>();
}

#[test]
fn printer_columns() {
    let path = |field: &str| format!(".status.conditions[?(@.status==\"True\")].{field}");
    let status = ("Status", "string", path("type"));
    let age = ("Status Age", "date", path("lastTransitionTime"));
    let reason = ("Reason", "string", path("reason"));
    for (definition, expected) in [
        (definition("nmstates"), vec![status.clone(), reason.clone()]),
        (definition("nodenetworkconfigurationpolicies"), vec![status.clone(), reason.clone()]),
        (definition("nodenetworkconfigurationenactments"), vec![status, age, reason]),
        (definition("nodenetworkstates"), vec![]),
    ] {
        for version in &definition.spec.versions {
            let columns = version.additional_printer_columns.clone().unwrap_or_default();
            let shown: Vec<_> = columns
                .iter()
                .map(|column| (&*column.name, &*column.type_, column.json_path.clone()))
                .collect();
            assert_eq!(shown, expected, "{} {}", definition.spec.names.kind, version.name);
            for column in &columns {
                assert_eq!(column.description.as_ref(), Some(&column.name));
                assert_eq!((column.priority, column.format.as_ref()), (None, None));
            }
        }
    }
}

#[test]
fn every_field_of_kubernetes_nmstate_is_there() {
    for (definition, path, fields) in [
        (
            definition("nmstates"),
            "spec",
            "affinity infraAffinity nodeSelector tolerations infraNodeSelector infraTolerations \
             selfSignConfiguration probeConfiguration metricsConfiguration logLevel",
        ),
        (
            definition("nmstates"),
            "spec.selfSignConfiguration",
            "caRotateInterval caOverlapInterval certRotateInterval certOverlapInterval",
        ),
        (definition("nmstates"), "status", "conditions"),
        (
            definition("nodenetworkstates"),
            "status",
            "currentState lastSuccessfulUpdateTime handlerNmstateVersion hostNetworkManagerVersion \
             handlerNetworkManagerVersion conditions",
        ),
        (
            definition("nodenetworkconfigurationpolicies"),
            "spec",
            "nodeSelector capture desiredState maxUnavailable",
        ),
        (
            definition("nodenetworkconfigurationpolicies"),
            "status",
            "conditions unavailableNodeCountMap unavailableNodeCount lastUnavailableNodeCountUpdate",
        ),
        (
            definition("nodenetworkconfigurationenactments"),
            "status",
            "desiredState desiredStateMetaInfo capturedStates policyGeneration conditions features retryCount",
        ),
        (definition("nodenetworkconfigurationenactments"), "status.desiredStateMetaInfo", "version time"),
    ] {
        for version in ["v1", "v1beta1"] {
            for field in fields.split_whitespace() {
                schema(definition, version, &format!("{path}.{field}"));
            }
        }
    }
}

#[test]
fn defaults_of_nmstate() {
    for (path, v1, v1beta1) in [
        ("spec", json!({}), json!({})),
        ("spec.probeConfiguration", json!({}), json!({})),
        (
            "spec.probeConfiguration.dns",
            json!({"host": "root-servers.net"}),
            json!({"host": "root-servers.net"}),
        ),
        ("spec.probeConfiguration.dns.host", json!("root-servers.net"), json!("root-servers.net")),
        ("spec.metricsConfiguration", json!({}), Value::Null),
        ("spec.metricsConfiguration.bindAddress", json!(":8089"), json!(":8089")),
        ("spec.logLevel", json!("info"), json!("info")),
        ("spec.allowNodeStateConfiguration", Value::Null, Value::Null),
        ("spec.allowDispatchScripts", Value::Null, Value::Null),
        ("spec.persistence", Value::Null, Value::Null),
    ] {
        assert_eq!(schema(definition("nmstates"), "v1", path)["default"], v1, "{path} in v1");
        assert_eq!(schema(definition("nmstates"), "v1beta1", path)["default"], v1beta1, "{path} in v1beta1");
    }
    let dns = schema(definition("nmstates"), "v1", "spec.probeConfiguration.dns");
    assert_eq!(dns["required"], json!(["host"]));
    assert_eq!(schema(definition("nmstates"), "v1", "spec.logLevel")["enum"], json!(["info", "debug"]));
    let persistence = schema(definition("nmstates"), "v1", "spec.persistence");
    assert_eq!(persistence["enum"], json!(["Persistent", "Ephemeral"]));
}

#[test]
fn no_other_kind_has_defaults_except_that_a_node_state_is_not_managed() {
    each_version(|kind, root| {
        if !kind.starts_with("NMState ") {
            walk(root, kind, &mut |path, schema| {
                let is_managed = kind.starts_with("NodeNetworkState ") && path.ends_with(".spec.managed");
                let expected = if is_managed { json!(false) } else { Value::Null };
                assert_eq!(schema["default"], expected, "{path}");
            });
        }
    });
}

#[test]
fn the_versions_of_a_kind_have_the_same_schema() {
    for definition in &*ALL {
        let (one, mut other) = (schema(definition, "v1", ""), schema(definition, "v1beta1", ""));
        if definition.spec.names.kind == "NMState" {
            other["properties"]["spec"]["properties"]["metricsConfiguration"]["default"] = json!({});
        }
        assert_eq!(one, other, "{}", definition.spec.names.kind);
    }
}

#[test]
fn conditions_are_a_plain_list() {
    for definition in &*ALL {
        let conditions = schema(definition, "v1", "status.conditions");
        assert_eq!(conditions["type"], "array");
        assert_eq!(conditions["items"]["required"], json!(["status", "type"]));
        let fields: Vec<_> = conditions["items"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(
            fields,
            ["lastHeartbeatTime", "lastTransitionTime", "message", "reason", "status", "type"]
        );
        for key in ["x-kubernetes-list-type", "x-kubernetes-list-map-keys"] {
            assert!(conditions[key].is_null(), "{}: {key}", definition.spec.names.kind);
        }
        assert!(conditions["items"]["properties"]["status"]["enum"].is_null());
    }
}

#[test]
fn only_states_and_values_keep_unknown_fields() {
    const KEEP: &str = "x-kubernetes-preserve-unknown-fields";
    let mut kept = Vec::new();
    each_version(|kind, root| {
        if kind.ends_with(" v1") {
            walk(root, kind.trim_end_matches(" v1"), &mut |path, schema| {
                if schema[KEEP] == true {
                    kept.push(path.to_owned());
                }
            });
        }
    });
    assert_eq!(
        kept,
        [
            // kubernetes-nmstate keeps unknown fields of an enactment too.
            "NodeNetworkConfigurationEnactment",
            "NodeNetworkConfigurationEnactment.spec.desiredState",
            "NodeNetworkConfigurationEnactment.status.capturedStates{}.state",
            "NodeNetworkConfigurationEnactment.status.desiredState",
            "NodeNetworkConfigurationEnactment.status.plan.difference",
            "NodeNetworkConfigurationPolicy.spec.desiredState",
            "NodeNetworkConfigurationPolicy.spec.nodeValues{}{}",
            "NodeNetworkConfigurationPolicy.spec.values{}",
            "NodeNetworkState.spec.desiredState",
            "NodeNetworkState.status.currentState",
        ]
    );
}

#[test]
fn node_selectors_are_checked() {
    let selector = schema(definition("nodenetworkconfigurationpolicies"), "v1", "spec.nodeSelector");
    assert_eq!(selector["maxProperties"], 256);
    let keys = &selector["x-kubernetes-validations"];
    assert_eq!(keys[0]["message"], "nodeSelector keys must be valid qualified names");
    let values = &selector["additionalProperties"]["x-kubernetes-validations"];
    assert_eq!(values[0]["message"], "nodeSelector values must be valid label values");
}

#[test]
fn a_limit_is_a_number_or_a_text() {
    for path in ["spec.maxUnavailable", "spec.rollout.maxFailures"] {
        let limit = schema(definition("nodenetworkconfigurationpolicies"), "v1", path);
        assert_eq!(limit["x-kubernetes-int-or-string"], true, "{path}");
        assert!(limit["type"].is_null(), "{path}");
    }
}

/// An absent spec or status is fine, as objects made by kubernetes-nmstate have none; so is every optional field
/// that holds `null`, which the API server drops because nothing is nullable.
#[test]
fn optional_means_absent() {
    each_version(|kind, root| {
        assert!(root["required"].is_null(), "{kind}: {}", root["required"]);
        walk(root, kind, &mut |path, schema| {
            assert!(schema["nullable"].is_null(), "{path} is nullable");
            assert!(schema["anyOf"].is_null() && schema["oneOf"].is_null(), "{path} has alternatives");
        });
    });
}

#[test]
fn required_fields() {
    let order = schema(definition("nodenetworkconfigurationenactments"), "v1", "spec");
    assert_eq!(order["required"], json!(["nodeName", "permit", "policyGeneration", "policyName"]));
    assert_eq!(order["properties"]["permit"]["enum"], json!(["Wait", "Apply", "Restore", "Abort"]));
    for definition in [
        definition("nodenetworkstates"),
        definition("nodenetworkconfigurationpolicies"),
        definition("nmstates"),
    ] {
        assert!(schema(definition, "v1", "spec")["required"].is_null(), "{}", definition.spec.names.kind);
    }
}

#[test]
fn every_field_is_explained() {
    each_version(|kind, root| {
        walk(root, kind, &mut |path, schema| {
            let is_field = path.contains('.') && !path.ends_with(']') && !path.ends_with('}');
            // Kubernetes explains its own types.
            let is_kubernetes_own = ["ffinity.", "olerations[]"].iter().any(|part| path.contains(part));
            if is_field && is_kubernetes_own {
                assert!(schema["description"].is_null(), "{path} repeats the text of Kubernetes");
            } else if is_field && !path.contains(".metadata") {
                let text = schema["description"].as_str().unwrap_or_default();
                assert!(text.len() > 5, "`kubectl explain` has nothing to say on {path}");
                assert!(!text.contains("Rust") && !text.contains("[`"), "{path}: {text}");
            }
        });
    });
}

#[test]
fn every_rule_has_a_message() {
    let mut rules = 0;
    each_version(|kind, root| {
        walk(root, kind, &mut |path, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                rules += 1;
                let has_message = rule["message"].is_string() || rule["messageExpression"].is_string();
                assert!(has_message, "{path}: {}", rule["rule"]);
            }
        });
    });
    assert!(rules > 50, "only {rules} rules were found");
}
