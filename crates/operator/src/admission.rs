//! ValidatingAdmissionPolicies. Their rules (CEL) are evaluated by the API server itself, so they hold whether or not any
//! process of ours runs.

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
        ValidatingAdmissionPolicySpec, Validation, Variable,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::{Object, Settings};

/// Every namespace has its name in this label.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// One ValidatingAdmissionPolicy.
pub(crate) struct Rules {
    /// Before the prefix.
    pub name: &'static str,
    pub group: &'static str,
    pub versions: &'static [&'static str],
    /// With the subresources to check.
    pub resources: &'static [&'static str],
    pub operations: &'static [&'static str],
    /// The namespace whose objects are checked; `None` for all namespaces and for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The user whose requests are checked; `None` for all users.
    pub only_for: Option<String>,
    /// Named expressions, each of which may use the ones before it.
    pub variables: Vec<(&'static str, String)>,
    pub checks: Vec<Check>,
}

/// One rule.
pub(crate) struct Check {
    /// True for requests that are allowed.
    pub expression: String,
    pub message: Message,
    pub reason: Reason,
}

/// The message of a refusal.
pub(crate) enum Message {
    Text(String),
    /// A CEL expression that returns the text.
    Expression(String),
}

/// The status of a refusal.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// Status 403.
    Forbidden,
    /// Status 422.
    Invalid,
}

impl Rules {
    /// The policy and its binding.
    pub(crate) fn objects(self, settings: &Settings) -> Vec<Object> {
        let metadata = settings.metadata(self.name);
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: settings.metadata(&format!("{}-binding", self.name)),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: metadata.name.clone(),
                validation_actions: Some(vec!["Deny".to_owned()]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        };
        let match_conditions = self.only_for.map(|user| {
            vec![MatchCondition {
                name: "only-for".to_owned(),
                expression: format!("request.userInfo.username == {}", text(&user)),
            }]
        });
        let variables = self.variables.into_iter();
        let variables =
            variables.map(|(name, expression)| Variable { name: name.to_owned(), expression }).collect();
        let policy = ValidatingAdmissionPolicy {
            metadata,
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some("Fail".to_owned()),
                match_conditions,
                match_constraints: Some(MatchResources {
                    namespace_selector: self.namespace.map(|namespace| LabelSelector {
                        match_labels: Some([(NAMESPACE_LABEL.to_owned(), namespace)].into()),
                        match_expressions: None,
                    }),
                    resource_rules: Some(vec![NamedRuleWithOperations {
                        api_groups: Some(vec![self.group.to_owned()]),
                        api_versions: Some(owned(self.versions)),
                        operations: Some(owned(self.operations)),
                        resources: Some(owned(self.resources)),
                        ..NamedRuleWithOperations::default()
                    }]),
                    ..MatchResources::default()
                }),
                variables: Some(variables).filter(|variables: &Vec<_>| !variables.is_empty()),
                validations: Some(self.checks.into_iter().map(Check::validation).collect()),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        };
        vec![policy.into(), binding.into()]
    }
}

impl Check {
    fn validation(self) -> Validation {
        let (message, message_expression) = match self.message {
            Message::Text(text) => (Some(text), None),
            Message::Expression(expression) => (None, Some(expression)),
        };
        let reason = match self.reason {
            Reason::Forbidden => "Forbidden",
            Reason::Invalid => "Invalid",
        };
        Validation {
            expression: self.expression,
            message,
            message_expression,
            reason: Some(reason.to_owned()),
        }
    }
}

/// The user name of a ServiceAccount in the namespace of handlers and controller.
pub(crate) fn user(settings: &Settings, account: &str) -> String {
    format!("system:serviceaccount:{}:{account}", settings.namespace)
}

/// A CEL string literal. Quotes and backslashes, which names in Kubernetes never have, are dropped.
pub(crate) fn text(text: &str) -> String {
    format!("'{}'", text.replace(['\'', '\\'], ""))
}

/// A CEL expression that is true if a field of the metadata is set. Server-side apply leaves `null` in place of a map or
/// list whose last entry it has removed; an access to its entries would be an error.
pub(crate) fn has_metadata(object: &str, field: &str) -> String {
    format!("(has({object}.metadata.{field}) && dyn({object}.metadata.{field}) != null)")
}

/// A CEL expression for a list in the metadata; empty if there is none.
pub(crate) fn entries(object: &str, field: &str) -> String {
    let present = has_metadata(object, field);
    format!("{object} != null && {present} ? {object}.metadata.{field} : []")
}

/// A check that refuses requests with status 403 unless the expression is true.
pub(crate) fn refuse_unless(expression: &str, message: Message) -> Check {
    Check { expression: expression.to_owned(), message, reason: Reason::Forbidden }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
