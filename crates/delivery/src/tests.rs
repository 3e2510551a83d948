//! What must be true of everything that is delivered.

use std::{collections::BTreeMap, fs};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knmstate_operator::installation::{self, Rights};
use serde_json::{Value, json};

use super::*;

fn by_path(files: Result<Vec<File>>) -> BTreeMap<String, String> {
    files.unwrap().into_iter().map(|file| (file.path.display().to_string(), file.text)).collect()
}

fn read(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn the_chart_in_deploy_is_that_of_the_code() {
    let chart = by_path(super::chart());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for (path, text) in &chart {
        let found = fs::read_to_string(deploy.join(path)).unwrap_or_default();
        assert!(
            found == *text,
            "deploy/{path} is not what the code generates. Run `make generate`, look at `git diff deploy`, and commit \
             it together with the change of the code."
        );
    }
    let mut directories = vec![deploy.join("chart")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&deploy).unwrap().display().to_string();
            if path.is_dir() {
                directories.push(path);
            } else {
                assert!(chart.contains_key(&name), "the code does not generate deploy/{name}");
            }
        }
    }
}

#[test]
fn every_copy_of_a_definition_has_the_bytes_of_deploy_crds() {
    let (chart, release) = (by_path(super::chart()), by_path(release()));
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut count = 0;
    for entry in fs::read_dir(crds).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(chart[&format!("chart/crds/{name}")] == text, "the chart has another {name}");
        assert!(release[&format!("bundle/manifests/{name}")] == text, "the bundle has another {name}");
        assert!(release.get(&name).is_none_or(|plain| *plain == text), "the manifests have another {name}");
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn the_assets_have_the_names_of_kubernetes_nmstate() {
    let release = by_path(release());
    let flat: Vec<_> = release.keys().filter(|path| !path.contains('/')).map(String::as_str).collect();
    assert_eq!(
        flat,
        [
            "knmstate.yaml",
            "namespace.yaml",
            "nmstate.io_nmstates.yaml",
            "nmstate.io_v1_nmstate_cr.yaml",
            "nmstate.io_v1_nodenetworkconfigurationpolicy_cr.yaml",
            "operator.yaml",
            "role.yaml",
            "role_binding.yaml",
            "service_account.yaml",
        ]
    );
}

#[test]
fn one_file_holds_what_the_files_of_kubernetes_nmstate_hold() {
    let release = by_path(release());
    let of = |name: &str| read(&release[&format!("{name}.yaml")]);
    let mut expected = Vec::new();
    for definition in knmstate_api::crds::all() {
        let plural = definition.spec.names.plural;
        expected.extend(read(&release[&format!("bundle/manifests/nmstate.io_{plural}.yaml")]));
    }
    for name in ["namespace", "service_account", "role", "role_binding", "operator"] {
        expected.extend(of(name));
    }
    assert_eq!(of("knmstate"), expected);
    assert_eq!(of("nmstate.io_nmstates").len(), 1);
    assert_eq!(
        of("nmstate.io_v1_nmstate_cr"),
        [json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"}})]
    );
    let policy: knmstate_api::NodeNetworkConfigurationPolicy =
        serde_json::from_value(of("nmstate.io_v1_nodenetworkconfigurationpolicy_cr").remove(0)).unwrap();
    assert_eq!(policy.metadata.name.as_deref(), Some("two-bridges"));
}

#[test]
fn no_hole_is_left_in_the_chart() {
    let chart = by_path(super::chart());
    let templates = chart.iter().filter(|(path, _)| path.starts_with("chart/templates/"));
    // There, it is what stands before the digest of an image.
    for (path, text) in templates.filter(|(path, _)| *path != "chart/templates/_helpers.tpl") {
        assert_eq!(text.lines().find(|line| line.contains('@')), None, "{path}");
    }
}

#[test]
fn what_the_chart_chooses_by_default_is_what_the_operator_has_anyway() {
    let values: Value = serde_saphyr::from_str(include_str!("../chart/values.yaml")).unwrap();
    let workload = installation::deployment(&installation::default_config(&image()));
    let workload = serde_json::to_value(workload).unwrap();
    let pod = &workload["spec"]["template"]["spec"];
    for key in ["affinity", "nodeSelector", "tolerations"] {
        assert_eq!(values[key], pod[key], "{key}");
    }
    assert_eq!(values["resources"], pod["containers"][0]["resources"]);
    assert_eq!(values["image"]["repository"], REPOSITORY);
}

#[test]
fn olm_gives_the_operator_the_rights_that_it_has_elsewhere() {
    let delivered = by_path(release());
    let path = "bundle/manifests/kubernetes-nmstate-operator.clusterserviceversion.yaml";
    let description = &read(&delivered[path])[0];
    let install = &description["spec"]["install"]["spec"];
    let rules = |place: &str| -> Rights {
        let rules = serde_json::from_value(install[place][0]["rules"].clone()).unwrap();
        Rights::of::<'_>(&Vec::<k8s_openapi::api::rbac::v1::PolicyRule>::clone(&rules))
    };
    let (in_own_namespace, cluster_wide) = (rules("permissions"), rules("clusterPermissions"));
    let held = installation::operator_rights(&installation::default_config(&image()));
    let nothing = Vec::<String>::new();
    assert_eq!(cluster_wide.lacking(&held.cluster_wide), nothing);
    let there = in_own_namespace.clone().and(&cluster_wide);
    for rights in held.in_namespaces.values().chain([&held.in_own_namespace]) {
        assert_eq!(there.lacking(rights), nothing);
    }
    // And no more, but for the second namespace that it may be in.
    let all = held.in_namespaces.values().fold(held.cluster_wide.and(&held.in_own_namespace), Rights::and);
    let more = all.lacking(&there);
    assert!(more.iter().all(|right| right.ends_with(" namespaces. (openshift-nmstate)")), "{more:?}");
}

#[test]
fn olm_gets_our_kinds_and_finds_what_it_looks_for() {
    let delivered = by_path(release());
    let path = "bundle/manifests/kubernetes-nmstate-operator.clusterserviceversion.yaml";
    let description = &read(&delivered[path])[0];
    let owned = description["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap();
    let mut expected = 0;
    for definition in knmstate_api::crds::all() {
        let name = definition.metadata.name.clone().unwrap();
        let plural = &definition.spec.names.plural;
        // Read as a definition, because numbers in a schema are written in more than one way.
        let delivered = &delivered[&format!("bundle/manifests/nmstate.io_{plural}.yaml")];
        assert_eq!(serde_saphyr::from_str::<CustomResourceDefinition>(delivered).unwrap(), definition);
        for version in &definition.spec.versions {
            expected += 1;
            assert!(
                owned.iter().any(|one| one["name"] == *name && one["version"] == *version.name),
                "{name} {}",
                version.name
            );
        }
    }
    assert_eq!(owned.len(), expected);
    let container = &description["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"]
        [0];
    let variable = |name: &str| {
        let environment = container["env"].as_array().unwrap();
        environment.iter().find(|variable| variable["name"] == *name).unwrap().clone()
    };
    let field = |name: &str| variable(name)["valueFrom"]["fieldRef"]["fieldPath"].clone();
    assert_eq!(field("WATCH_NAMESPACE"), "metadata.annotations['olm.targetNamespaces']");
    assert_eq!(field("HANDLER_NAMESPACE"), "metadata.namespace");
    assert_eq!(
        variable("RELATED_IMAGE_HANDLER_IMAGE")["value"],
        description["spec"]["relatedImages"][0]["image"]
    );
    let annotations = &read(&delivered["bundle/metadata/annotations.yaml"])[0]["annotations"];
    for (key, value) in annotations.as_object().unwrap() {
        let label = format!("LABEL {key}={}\n", value.as_str().unwrap());
        assert!(delivered["bundle/bundle.Dockerfile"].contains(&label), "{label}");
    }
}
