//! What must be true of everything that is delivered.

use std::{collections::BTreeMap, fs};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knmstate_operator::installation::{self, rules::Rights};
use serde_json::{Value, json};

use super::*;

fn delivered() -> BTreeMap<String, String> {
    files().unwrap().into_iter().map(|file| (file.path.display().to_string(), file.text)).collect()
}

fn read(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn the_files_in_deploy_are_those_of_the_code() {
    let delivered = delivered();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for (path, text) in &delivered {
        let found = fs::read_to_string(deploy.join(path)).unwrap_or_default();
        assert!(
            found == *text,
            "deploy/{path} is not what the code says. Run `make generate`, look at `git diff deploy`, and commit it \
             together with the change of the code."
        );
    }
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| deploy.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&deploy).unwrap().display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert!(delivered.contains_key(&name), "deploy/{name} is delivered by nobody");
            }
        }
    }
}

#[test]
fn one_file_holds_what_the_files_of_kubernetes_nmstate_hold() {
    let delivered = delivered();
    let of = |name: &str| read(&delivered[&format!("manifests/{name}.yaml")]);
    let mut expected = Vec::new();
    for definition in knmstate_api::crds::all() {
        let plural = definition.spec.names.plural;
        expected.extend(read(&delivered[&format!("bundle/manifests/nmstate.io_{plural}.yaml")]));
    }
    for name in ["namespace", "service_account", "role", "role_binding", "operator"] {
        expected.extend(of(name));
    }
    assert_eq!(of("knmstate"), expected);
    assert_eq!(of("nmstate.io_nmstates").len(), 1);
    assert_eq!(
        of("nmstate"),
        [json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"}})]
    );
}

#[test]
fn no_hole_is_left_in_the_chart() {
    let delivered = delivered();
    let templates = delivered.iter().filter(|(path, _)| path.starts_with("chart/templates/"));
    // There, it is what stands before the digest of an image.
    for (path, text) in templates.filter(|(path, _)| *path != "chart/templates/_helpers.tpl") {
        assert_eq!(text.lines().find(|line| line.contains('@')), None, "{path}");
    }
}

#[test]
fn what_the_chart_chooses_by_default_is_what_the_operator_has_anyway() {
    let values: Value = serde_saphyr::from_str(include_str!("../chart/values.yaml")).unwrap();
    let workload = installation::deployment(&installation::usual(&image()));
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
    let delivered = delivered();
    let path = "bundle/manifests/kubernetes-nmstate-operator.clusterserviceversion.yaml";
    let description = &read(&delivered[path])[0];
    let install = &description["spec"]["install"]["spec"];
    let rules = |place: &str| -> Rights {
        let rules = serde_json::from_value(install[place][0]["rules"].clone()).unwrap();
        Rights::of::<'_>(&Vec::<k8s_openapi::api::rbac::v1::PolicyRule>::clone(&rules))
    };
    let (at_home, everywhere) = (rules("permissions"), rules("clusterPermissions"));
    let held = installation::of_operator(&installation::usual(&image()));
    let nothing = Vec::<String>::new();
    assert_eq!(everywhere.lacking(&held.everywhere), nothing);
    let there = at_home.clone().and(&everywhere);
    for rights in held.in_namespaces.values().chain([&held.at_home]) {
        assert_eq!(there.lacking(rights), nothing);
    }
    // And no more, but for the second namespace that it may be in.
    let all = held.in_namespaces.values().fold(held.everywhere.and(&held.at_home), Rights::and);
    let more = all.lacking(&there);
    assert!(more.iter().all(|right| right.ends_with(" namespaces. (openshift-nmstate)")), "{more:?}");
}

#[test]
fn olm_gets_our_kinds_and_finds_what_it_looks_for() {
    let delivered = delivered();
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
