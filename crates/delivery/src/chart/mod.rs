//! The Helm chart: the objects of an installation in which the few things that a user may choose are holes.
//!
//! What a user may choose, and what it is when he does not, is in `chart/values.yaml` and `chart/values.schema.json`
//! beside this crate's sources; `helm template` with nothing chosen gives the plain manifests, which is tested.
//!
//! The definitions of the kinds are in the directory `crds`: so they exist before the NMState of the same release, and
//! Helm never removes them, and with them everything that users have written. That it does not renew them either is no
//! loss: the operator does, whenever it starts. As templates they would belong to Helm and to the operator, and the one
//! would refuse what the other has changed.

mod hooks;
mod template;

use anyhow::Result;
use knmstate_operator::{
    Config, Group, Object,
    installation::{self, default_config},
};
use serde_json::{Value, json};

use crate::{File, VERSION, definitions};
use template::{Hole, template};

const DIRECTORY: &str = "chart";

/// Those that are not made of objects.
const TEXTS: [(&str, &str); 6] = [
    ("values.yaml", include_str!("../../chart/values.yaml")),
    ("values.schema.json", include_str!("../../chart/values.schema.json")),
    ("README.md", include_str!("../../chart/README.md")),
    (".helmignore", include_str!("../../chart/helmignore")),
    ("templates/_helpers.tpl", include_str!("../../chart/_helpers.tpl")),
    ("templates/NOTES.txt", include_str!("../../chart/NOTES.txt")),
];

pub fn files() -> Result<Vec<File>> {
    let config = with_holes();
    let groups = installation::groups(&config);
    let mut files: Vec<File> = TEXTS.iter().map(|(name, text)| File::new(DIRECTORY, name, *text)).collect();
    files.push(File::new(DIRECTORY, "Chart.yaml", chart()));
    files.extend(definitions("chart/crds")?);
    let of = |name: &str| -> Result<Vec<Value>> { values(groups.iter().find(|group| group.name == name)) };
    let mut add = |name: &str, objects: &[Value]| -> Result<()> {
        files.push(File::new(DIRECTORY, &format!("templates/{name}.yaml"), template(objects)?));
        Ok(())
    };
    add("service-account", &of("service_account")?)?;
    add("roles", &of("role")?)?;
    add("role-bindings", &of("role_binding")?)?;
    let operator = of("operator")?;
    let (workload, others): (Vec<_>, Vec<_>) =
        operator.into_iter().partition(|object| object["kind"] == "Deployment");
    add("network-policies", &others)?;
    add("operator", &workload.into_iter().map(with_choices).collect::<Vec<_>>())?;
    add("check", &hooks::check(&config)?)?;
    let removal = template(&hooks::removal(&config)?)?;
    let removal = format!("{{{{- if .Values.removal.enabled }}}}\n{removal}{{{{- end }}}}\n");
    files.push(File::new(DIRECTORY, "templates/removal.yaml", removal));
    files.push(File::new(DIRECTORY, "templates/nmstate.yaml", NMSTATE));
    Ok(files)
}

/// An NMState of the release itself, so that it changes and goes with it. Its definition is there by then.
const NMSTATE: &str = "\
{{- if .Values.nmstate.create }}
apiVersion: nmstate.io/v1
kind: NMState
metadata:
  name: nmstate
spec:
  {{- toYaml .Values.nmstate.spec | nindent 2 }}
{{- end }}
";

fn chart() -> String {
    format!(
        "apiVersion: v2
name: knmstate
description: Declarative node networking for Kubernetes
type: application
version: {VERSION}
appVersion: {VERSION}
kubeVersion: \">=1.33.0-0\"
home: {repository}
sources:
  - {repository}
keywords: [network, nmstate, NetworkManager, bond, vlan, bridge]
maintainers:
  - name: The knmstate authors
    url: {repository}
annotations:
  artifacthub.io/license: {license}
",
        repository = env!("CARGO_PKG_REPOSITORY"),
        license = env!("CARGO_PKG_LICENSE"),
    )
}

/// An installation of which nothing is known yet.
fn with_holes() -> Config {
    let usual = default_config(Hole::Image.mark());
    let retries = [
        ("NNCP_MAX_RETRIES", Hole::MaxRetries),
        ("NNCP_MAX_BACKOFF_SECONDS", Hole::MaxBackoff),
        ("NNCP_INITIAL_BACKOFF_SECONDS", Hole::InitialBackoff),
    ];
    Config {
        namespace: Hole::HandlerNamespace.mark().to_owned(),
        prefix: Some(Hole::Prefix.mark().to_owned()),
        operator_namespace: Hole::ReleaseNamespace.mark().to_owned(),
        monitoring_namespace: Hole::MonitoringNamespace.mark().to_owned(),
        pull_policy: Hole::PullPolicy.mark().to_owned(),
        handler_environment: retries.map(|(name, hole)| (name.to_owned(), hole.mark().to_owned())).into(),
        ..usual
    }
}

/// The operator's workload, where more can be chosen than a configuration has.
fn with_choices(mut deployment: Value) -> Value {
    let pod = &mut deployment["spec"]["template"]["spec"];
    for key in ["affinity", "nodeSelector", "tolerations"] {
        pod[key] = json!(template::block(key));
    }
    pod["imagePullSecrets"] = json!(template::optional_block("imagePullSecrets"));
    let container = &mut pod["containers"][0];
    container["resources"] = json!(template::block("resources"));
    let environment = container["env"].as_array_mut();
    for variable in environment.into_iter().flatten() {
        let hole = match variable["name"].as_str() {
            Some("AUTO_CREATE") => Hole::AutoCreate,
            Some("AUTO_CREATE_PLATFORMS") => Hole::Platforms,
            _ => continue,
        };
        variable["value"] = json!(hole.mark());
    }
    deployment
}

fn values(group: Option<&Group>) -> Result<Vec<Value>> {
    let objects: Vec<&Object> = group.iter().flat_map(|group| &group.objects).collect();
    objects.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
}
