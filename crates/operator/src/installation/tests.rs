//! What must be true of every installation.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{
    rights::{Right, Rights},
    *,
};
use crate::kinds;

fn configurations() -> [Config; 3] {
    let usual = default_config("registry.example/knmstate:1");
    let apart = Config { operator_namespace: "operators".to_owned(), ..usual.clone() };
    let second = Config { namespace: "second".to_owned(), prefix: Some("x".to_owned()), ..apart.clone() };
    [usual, apart, second]
}

fn installed(config: &Config) -> Vec<Object> {
    groups(config).into_iter().flat_map(|group| group.objects).collect()
}

/// The rights of the operator in a namespace, or on cluster-scoped objects, by the installed roles.
fn held(installed: &[Object], namespace: Option<&str>) -> Rights {
    let mut rights = Rights::default();
    for object in installed {
        let rules = match object {
            Object::ClusterRole(role) => &role.rules,
            Object::Role(role) if object.namespace() == namespace => &role.rules,
            _ => continue,
        };
        rights.add_all(rules.iter().flatten());
    }
    rights
}

#[test]
fn the_operator_has_whatever_it_grants() {
    for config in configurations() {
        let installed = installed(&config);
        for object in all_operands(&config) {
            let rules: &[PolicyRule] = match &object {
                Object::ClusterRole(role) => role.rules.as_deref().unwrap_or_default(),
                Object::Role(role) => role.rules.as_deref().unwrap_or_default(),
                _ => continue,
            };
            let lacking = held(&installed, object.namespace()).lacking(&Rights::of(rules));
            assert_eq!(lacking, Vec::<String>::new(), "{} in {:?}", object.name(), object.namespace());
        }
    }
}

#[test]
fn the_operator_may_create_correct_and_remove_its_objects() {
    for config in configurations() {
        let installed = installed(&config);
        for object in all_operands(&config) {
            let kind = kinds::kind_of(object.api_version(), object.kind()).unwrap();
            assert_eq!(kind.namespaced, object.namespace().is_some(), "{kind:?}");
            let held = held(&installed, object.namespace());
            let stays = *kind == kinds::DEFINITION;
            let verbs = ["get", "list", "watch", "create", "patch", "delete"].into_iter();
            for verb in verbs.filter(|verb| *verb != "delete" || !stays) {
                let right = Right {
                    group: kind.group().to_owned(),
                    resource: kind.plural.to_owned(),
                    // It is not known to who decides.
                    name: (!["create", "list", "watch"].contains(&verb)).then(|| object.name().to_owned()),
                    verb: verb.to_owned(),
                };
                assert!(held.contains_right(&right), "{right:?} in {:?}", object.namespace());
            }
        }
    }
}

#[test]
fn no_account_can_escalate_its_rights() {
    for config in configurations() {
        for rights in [operator_rights(&config), remover_rights(&config), checker_rights(&config)] {
            let all = [rights.cluster_wide, rights.in_own_namespace];
            for rule in all.iter().chain(rights.in_namespaces.values()).flat_map(Rights::rules) {
                let words = [&rule.api_groups, &rule.resources].into_iter().flatten().flatten();
                for word in words.chain(&rule.verbs) {
                    assert!(!["*", "bind", "escalate", "impersonate"].contains(&&**word), "{rule:?}");
                }
            }
        }
    }
}

#[test]
fn only_our_own_cluster_scoped_objects_can_be_changed() {
    let [config, ..] = configurations();
    let writes = ["update", "patch", "delete", "deletecollection"];
    // Objects in our group, which users and operands write, are guarded by other rules.
    let ours = |rule: &PolicyRule| rule.api_groups.iter().flatten().all(|group| group == names::GROUP);
    for rule in operator_rights(&config).cluster_wide.rules().iter().filter(|rule| !ours(rule)) {
        let changes = rule.verbs.iter().any(|verb| writes.contains(&verb.as_str()));
        assert!(!changes || rule.resource_names.is_some(), "{rule:?}");
    }
}

#[test]
fn secrets_are_read_and_removed_by_name_and_in_one_namespace() {
    for config in configurations() {
        let of_secrets = |rights: &Rights| -> Vec<PolicyRule> {
            let named = |rule: &PolicyRule| rule.resources.iter().flatten().any(|name| name == "secrets");
            rights.rules().into_iter().filter(named).collect()
        };
        let rights = operator_rights(&config);
        assert_eq!(of_secrets(&rights.cluster_wide), []);
        for (namespace, rights) in &rights.in_namespaces {
            for rule in of_secrets(rights) {
                assert_eq!(namespace, &config.namespace);
                assert!(rule.verbs == ["create"] || rule.resource_names.is_some(), "{rule:?}");
            }
        }
    }
}

#[test]
fn the_remover_may_remove_what_is_made_but_no_definition() {
    for config in configurations() {
        let rights = remover_rights(&config);
        let may_delete = |object: &Object| {
            let kind = kinds::kind_of(object.api_version(), object.kind()).unwrap();
            let there = object.namespace().and_then(|namespace| rights.in_namespaces.get(namespace));
            let held = rights.cluster_wide.clone().and(there.unwrap_or(&Rights::default()));
            held.contains_right(&Right {
                group: kind.group().to_owned(),
                resource: kind.plural.to_owned(),
                name: Some(object.name().to_owned()),
                verb: "delete".to_owned(),
            })
        };
        for object in all_operands(&config) {
            let is_definition = object.kind() == "CustomResourceDefinition";
            assert_ne!(may_delete(&object), is_definition, "{} {}", object.kind(), object.name());
        }
    }
}

#[test]
fn every_object_is_there_once_and_not_one_of_the_operands() {
    for config in configurations() {
        let mut seen = BTreeSet::new();
        for object in installed(&config) {
            let written = serde_json::to_value(&object).unwrap();
            assert_eq!(written["apiVersion"], object.api_version());
            assert_eq!(written["kind"], object.kind());
            let managed = &written["metadata"]["labels"]["app.kubernetes.io/managed-by"];
            assert!(managed.is_null(), "the operator would remove {written}");
            let id = (object.kind(), object.namespace().map(str::to_owned), object.name().to_owned());
            assert!(seen.insert(id), "twice: {written}");
        }
        for operand in all_operands(&config) {
            let id = (operand.kind(), operand.namespace().map(str::to_owned), operand.name().to_owned());
            let shared = ["CustomResourceDefinition", "Namespace"].contains(&operand.kind());
            assert!(shared || !seen.contains(&id), "{id:?} is made twice");
        }
    }
}

#[test]
fn two_installations_share_nothing_but_the_kinds() {
    let [_, apart, second] = configurations();
    let ids = |config: &Config| -> BTreeSet<_> {
        let ours = installed(config).into_iter().filter(|object| object.kind() != "CustomResourceDefinition");
        ours.map(|object| (object.kind(), object.namespace().map(str::to_owned), object.name().to_owned()))
            .collect()
    };
    let shared: Vec<_> = ids(&apart).intersection(&ids(&second)).cloned().collect();
    assert_eq!(shared, [("Namespace", None, "operators".to_owned())]);
}
