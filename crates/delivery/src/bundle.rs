//! The bundle for OLM, the Operator Lifecycle Manager: what it makes the operator from.
//!
//! OLM makes account, roles and bindings itself, from the rules in the description. It knows two places for rules, the
//! namespace of the operator and the whole cluster; so what the operator may do in `default` and `kube-node-lease` it may
//! do everywhere here. Handlers run in the operator's namespace.

use anyhow::Result;
use k8s_openapi::{
    api::rbac::v1::PolicyRule,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use knmstate_api::crds;
use knmstate_operator::{
    Config,
    installation::{Rights, ScopedRights, default_config, deployment, operator_rights},
};
use serde_json::{Value, json};

use crate::{File, REPOSITORY, VERSION, definitions, documents, image, manifests};

const DIRECTORY: &str = "bundle";
const PACKAGE: &str = "kubernetes-nmstate-operator";
const CHANNEL: &str = "alpha";
const ACCOUNT: &str = "nmstate-operator";
const HOME: &str = env!("CARGO_PKG_REPOSITORY");
/// Where the operator can be installed: the rights to write a namespace name it.
const NAMESPACES: [&str; 2] = ["nmstate", "openshift-nmstate"];
const DESCRIPTION: &str = "\
Declarative node networking: a NodeNetworkConfigurationPolicy says what the network of some nodes should be, and the \
cluster makes it so, one guarded transaction per node, which is taken back when it would cut a node off. Every node's \
real network is shown as a NodeNetworkState.

Create an NMState to switch it on. Machines need NetworkManager.
";

pub fn files() -> Result<Vec<File>> {
    let mut files = vec![
        File::new(DIRECTORY, "bundle.Dockerfile", dockerfile()),
        File::new(
            DIRECTORY,
            "metadata/annotations.yaml",
            documents(&[json!({ "annotations": annotations() })])?,
        ),
        File::new(
            DIRECTORY,
            &format!("manifests/{PACKAGE}.clusterserviceversion.yaml"),
            documents(&[description()?])?,
        ),
    ];
    files.extend(definitions("bundle/manifests")?);
    Ok(files)
}

/// What the operator may do in its own namespace, and everywhere.
pub fn permissions() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let (mut in_own_namespace, mut cluster_wide) = (Rights::default(), Rights::default());
    for namespace in NAMESPACES {
        let config = Config {
            namespace: namespace.to_owned(),
            operator_namespace: namespace.to_owned(),
            ..default_config(&image())
        };
        let held: ScopedRights = operator_rights(&config);
        cluster_wide = cluster_wide.and(&held.cluster_wide);
        in_own_namespace = in_own_namespace.and(&held.in_own_namespace);
        for (place, rights) in &held.in_namespaces {
            let joined = if place == namespace { &mut in_own_namespace } else { &mut cluster_wide };
            *joined = std::mem::take(joined).and(rights);
        }
    }
    (in_own_namespace.rules(), cluster_wide.rules())
}

/// The ClusterServiceVersion.
fn description() -> Result<Value> {
    let (in_own_namespace, cluster_wide) = permissions();
    let granted = |rules: Vec<PolicyRule>| json!([{ "serviceAccountName": ACCOUNT, "rules": rules }]);
    let deployment = json!({
        "name": ACCOUNT,
        "label": workload()?["metadata"]["labels"],
        "spec": workload()?["spec"],
    });
    let owned: Vec<Value> = crds::all().iter().flat_map(owned).collect();
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{PACKAGE}.v{VERSION}"),
            "annotations": {
                "alm-examples": serde_json::to_string_pretty(&json!([manifests::nmstate()?]))?,
                "capabilities": "Seamless Upgrades",
                "categories": "Networking",
                "containerImage": image(),
                "description": "Declarative node networking for Kubernetes",
                "operatorframework.io/suggested-namespace": NAMESPACES[0],
                "operators.operatorframework.io/internal-objects":
                    r#"["nodenetworkconfigurationenactments.nmstate.io","nodenetworkstates.nmstate.io"]"#,
                "repository": HOME,
                "support": HOME,
            },
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/arch.arm64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": {
            "displayName": "knmstate",
            "description": DESCRIPTION,
            "version": VERSION,
            "maturity": CHANNEL,
            "minKubeVersion": "1.33.0",
            "keywords": ["network", "nmstate", "NetworkManager"],
            "links": [{ "name": "Source code", "url": HOME }],
            "maintainers": [{ "name": "The knmstate authors", "email": "maintainers@knmstate.io" }],
            "provider": { "name": "knmstate", "url": HOME },
            "customresourcedefinitions": { "owned": owned },
            "install": {
                "strategy": "deployment",
                "spec": {
                    "permissions": granted(in_own_namespace),
                    "clusterPermissions": granted(cluster_wide),
                    "deployments": [deployment],
                },
            },
            "installModes": modes.map(|mode| json!({ "type": mode, "supported": mode == "AllNamespaces" })),
            "relatedImages": [{ "name": "handler-image", "image": image() }],
        },
    }))
}

/// Every version of a kind.
fn owned(definition: &CustomResourceDefinition) -> Vec<Value> {
    let spec = &definition.spec;
    let of_version = |version: &str| {
        json!({
            "name": definition.metadata.name,
            "kind": spec.names.kind,
            "version": version,
            "displayName": spec.names.kind,
            "description": match spec.names.kind.as_str() {
                "NMState" => "Switches node networking on and says where its parts run.",
                "NodeNetworkConfigurationPolicy" => "What the network of some nodes should be.",
                "NodeNetworkConfigurationEnactment" => "How far a policy is on a node.",
                _ => "What the network of a node is.",
            },
        })
    };
    spec.versions.iter().map(|version| of_version(&version.name)).collect()
}

/// The operator's workload. OLM sets its namespace and what it watches.
fn workload() -> Result<Value> {
    let mut workload = serde_json::to_value(deployment(&default_config(&image())))?;
    let own = |name: &str, field: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } });
    let environment = workload["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut();
    if let Some(environment) = environment {
        environment.retain(|variable| variable["name"] != "HANDLER_NAMESPACE");
        environment.push(own("HANDLER_NAMESPACE", "metadata.namespace"));
        environment.push(own("WATCH_NAMESPACE", "metadata.annotations['olm.targetNamespaces']"));
    }
    Ok(workload)
}

fn annotations() -> Value {
    json!({
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": PACKAGE,
        "operators.operatorframework.io.bundle.channels.v1": CHANNEL,
        "operators.operatorframework.io.bundle.channel.default.v1": CHANNEL,
    })
}

/// The image of the bundle says in its labels what `annotations.yaml` says.
fn dockerfile() -> String {
    let annotations = annotations();
    let labels = annotations.as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("LABEL {key}={}", value.as_str().unwrap_or_default())).collect();
    let labels = labels.join("\n");
    format!(
        "# Generated by `make release` from crates/delivery. Do not edit.\n\
         # docker build --file bundle/bundle.Dockerfile --tag {REPOSITORY}-bundle:{VERSION} bundle\n\
         FROM scratch\n\n{labels}\n\nCOPY manifests /manifests/\nCOPY metadata /metadata/\n"
    )
}
