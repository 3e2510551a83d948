//! What Helm runs besides: the removal of everything before the operator goes, and `helm test`.
//!
//! Their accounts and rights are there while they run, and no longer.

use anyhow::Result;
use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, EnvVar, Pod, PodSpec, PodTemplateSpec},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_operator::{
    Config,
    installation::{ServiceAccountRoles, checker_rights, pod_spec, remover_rights},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::template::{Hole, optional_block};

const REMOVER: &str = "nmstate-remover";
const CHECKER: &str = "nmstate-checker";

/// Before `helm uninstall` removes the operator, everything that it has made is removed, by itself it would stay.
pub fn removal(config: &Config) -> Result<Vec<Value>> {
    let arguments = ["remove", "--timeout", Hole::RemovalTimeout.mark()];
    let job = Job {
        metadata: metadata(config, REMOVER),
        spec: Some(JobSpec {
            backoff_limit: Some(2),
            template: PodTemplateSpec { metadata: None, spec: Some(pod(config, REMOVER, &arguments)) },
            ..JobSpec::default()
        }),
        status: None,
    };
    let mut job = serde_json::to_value(job)?;
    job["spec"]["activeDeadlineSeconds"] = json!(Hole::RemovalDeadline.mark());
    job["spec"]["template"]["spec"]["imagePullSecrets"] = json!(optional_block("imagePullSecrets"));
    hook("pre-delete", &ServiceAccountRoles::new(config, REMOVER, remover_rights(config)), job)
}

/// `helm test`: whether every node that should be heard of is.
pub fn check(config: &Config) -> Result<Vec<Value>> {
    let pod = Pod {
        metadata: metadata(config, CHECKER),
        spec: Some(pod(config, CHECKER, &["check"])),
        status: None,
    };
    let mut pod = serde_json::to_value(pod)?;
    pod["spec"]["imagePullSecrets"] = json!(optional_block("imagePullSecrets"));
    hook("test", &ServiceAccountRoles::new(config, CHECKER, checker_rights(config)), pod)
}

fn hook(event: &str, roles: &ServiceAccountRoles<'_>, process: Value) -> Result<Vec<Value>> {
    let mut objects = roles.objects().iter().map(to_value).collect::<Result<Vec<_>>>()?;
    objects.push(process);
    let last = objects.len() - 1;
    for (place, object) in objects.iter_mut().enumerate() {
        object["metadata"]["annotations"] = json!({
            "helm.sh/hook": event,
            // The process comes after the rights that it needs.
            "helm.sh/hook-weight": if place == last { "0" } else { "-5" },
            // One that has failed stays to be looked at, until the next attempt.
            "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        });
    }
    if let Some(process) = objects.last_mut() {
        // What it says is shown to who has called Helm.
        process["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] =
            json!("hook-succeeded,hook-failed");
    }
    Ok(objects)
}

fn to_value(object: &impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(object)?)
}

fn metadata(config: &Config, name: &str) -> ObjectMeta {
    let prefix = config.prefix.as_deref().unwrap_or_default();
    ObjectMeta {
        name: Some(format!("{prefix}-{name}")),
        namespace: Some(config.operator_namespace.clone()),
        ..ObjectMeta::default()
    }
}

fn pod(config: &Config, account: &'static str, arguments: &[&str]) -> PodSpec {
    let variable = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    };
    let container = Container {
        name: "knmstate".to_owned(),
        args: Some(arguments.iter().map(|&word| word.to_owned()).collect()),
        env: Some(vec![
            variable("HANDLER_NAMESPACE", &config.namespace),
            variable("OPERATOR_NAMESPACE", &config.operator_namespace),
            variable("HANDLER_PREFIX", config.prefix.as_deref().unwrap_or_default()),
        ]),
        ..Container::default()
    };
    PodSpec { restart_policy: Some("Never".to_owned()), ..pod_spec(config, account, container) }
}
