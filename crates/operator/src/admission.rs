//! Rules of the API server's own, in its own language (CEL): they hold as long as there is an API server, whether
//! anything of ours runs or not.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use knmstate_api::names;

use crate::{Object, Settings};

/// What requests must keep to.
pub struct Rules {
    /// Before the prefix.
    pub name: &'static str,
    pub versions: &'static [&'static str],
    /// Of the group nmstate.io, with their subresources if those are to be checked.
    pub resources: &'static [&'static str],
    pub operations: &'static [&'static str],
    /// Who has to keep to them: the name of a user. `None` is everybody.
    pub only_for: Option<String>,
    /// Names for expressions, each of which may use those before.
    pub variables: Vec<(&'static str, String)>,
    pub checks: Vec<Check>,
}

/// One rule.
pub struct Check {
    /// True for what is allowed.
    pub expression: String,
    pub message: Message,
    pub reason: Reason,
}

/// What the author of a refused request reads.
pub enum Message {
    Text(String),
    /// An expression that makes the text.
    Expression(String),
}

/// How a refusal is answered.
#[derive(Clone, Copy)]
pub enum Reason {
    /// Status 403.
    Forbidden,
    /// Status 422.
    Invalid,
}

impl Rules {
    /// The policy, and the binding that puts it in force.
    pub fn objects(self, settings: &Settings) -> Vec<Object> {
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
                    resource_rules: Some(vec![NamedRuleWithOperations {
                        api_groups: Some(vec![names::GROUP.to_owned()]),
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

/// A text as an expression. Names of Kubernetes have neither quotes nor backslashes, which would end or change it.
pub fn text(text: &str) -> String {
    format!("'{}'", text.replace(['\'', '\\'], ""))
}

/// Whether a field of the metadata is there, as an expression. Server-side apply leaves `null` in place of a map or list
/// that it has taken the last entry from, and no schema refuses that in metadata; to look into it would be an error.
pub fn has_metadata(object: &str, field: &str) -> String {
    format!("(has({object}.metadata.{field}) && dyn({object}.metadata.{field}) != null)")
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
