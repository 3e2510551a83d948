//! The webhook configurations: the controller adds a timestamp to policies and validates them.
//!
//! The `caBundle` is not set here but by [`ca_bundle`](crate::ca_bundle), once the controllers have published it. Applying
//! these objects without one keeps one that another component has set, such as service-ca of OpenShift.

use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use knmstate_api::names;

use crate::{Object, Settings};

/// Policies can be written while no controller responds; the leader validates them later.
const FAILURE_POLICY: &str = "Ignore";
const TIMEOUT_SECONDS: i32 = 10;
const POLICIES: &str = "nodenetworkconfigurationpolicies";
const STATUS: &str = "nodenetworkconfigurationpolicies/status";

pub(crate) fn webhooks(settings: &Settings) -> Vec<Object> {
    let mutating = MutatingWebhookConfiguration {
        metadata: metadata(settings),
        webhooks: Some(vec![
            mutating(settings, "nodenetworkconfigurationpolicies-mutate", &[POLICIES]),
            mutating(settings, "nodenetworkconfigurationpolicies-status-mutate", &[STATUS]),
            mutating(settings, "nodenetworkconfigurationpolicies-timestamp-mutate", &[POLICIES, STATUS]),
        ]),
    };
    let validating = ValidatingWebhookConfiguration {
        metadata: metadata(settings),
        webhooks: Some(vec![validating(settings, "nodenetworkconfigurationpolicies-validate", &[POLICIES])]),
    };
    vec![mutating.into(), validating.into()]
}

fn metadata(settings: &Settings) -> ObjectMeta {
    let inject = ("service.beta.openshift.io/inject-cabundle".to_owned(), "true".to_owned());
    ObjectMeta { annotations: Some([inject].into()), ..settings.metadata("nmstate") }
}

fn mutating(settings: &Settings, path: &str, resources: &[&str]) -> MutatingWebhook {
    MutatingWebhook {
        name: format!("{path}.{}", names::GROUP),
        client_config: at(settings, path),
        rules: Some(vec![on(resources)]),
        admission_review_versions: review_versions(),
        failure_policy: Some(FAILURE_POLICY.to_owned()),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..MutatingWebhook::default()
    }
}

fn validating(settings: &Settings, path: &str, resources: &[&str]) -> ValidatingWebhook {
    ValidatingWebhook {
        name: format!("{path}.{}", names::GROUP),
        client_config: at(settings, path),
        rules: Some(vec![on(resources)]),
        admission_review_versions: review_versions(),
        failure_policy: Some(FAILURE_POLICY.to_owned()),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..ValidatingWebhook::default()
    }
}

fn at(settings: &Settings, path: &str) -> WebhookClientConfig {
    WebhookClientConfig {
        service: Some(ServiceReference {
            name: settings.webhook_service(),
            namespace: settings.namespace.clone(),
            path: Some(format!("/{path}")),
            port: Some(443),
        }),
        ..WebhookClientConfig::default()
    }
}

fn on(resources: &[&str]) -> RuleWithOperations {
    let owned = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    RuleWithOperations {
        api_groups: owned(&[names::GROUP]),
        api_versions: owned(&["v1alpha1", "v1beta1", "v1"]),
        operations: owned(&["CREATE", "UPDATE"]),
        resources: owned(resources),
        ..RuleWithOperations::default()
    }
}

fn review_versions() -> Vec<String> {
    ["v1", "v1beta1"].map(str::to_owned).into()
}
