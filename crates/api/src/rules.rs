//! Validation rules that more than one field uses, in the language of the API server (CEL).
//!
//! A rule of a single field is at that field. The rules need Kubernetes 1.33; bounds on lengths and sizes keep them within
//! the API server's cost budget. A value that was stored before its rule existed stays readable, and an update that does
//! not change it is not refused (Kubernetes calls that ratcheting).

use kube::core::{Message, Rule};
use serde_json::{Value, json};

use crate::duration;

/// A [`duration::Duration`].
pub(crate) fn duration() -> Value {
    json!({
        "rule": format!(
            "self != '' && self.matches('{}') && duration(self) > duration('0s') && duration(self) < duration('100000h')",
            duration::PATTERN
        ),
        "message": "must be a duration such as \"90s\", \"5m\" or \"1h30m\", longer than zero and below 100000 hours",
    })
}

/// A number or a percentage of nodes.
pub(crate) fn count_or_percent() -> Value {
    json!([
        {
            "rule": "type(self) == string || (self >= 0 && self <= 2147483647)",
            "message": "must be a number of nodes from 0 to 2147483647, or a percentage such as \"25%\"",
        },
        {
            "rule": "type(self) != string || self.matches('^[0-9]{1,5}%$')",
            "messageExpression": "'\"' + string(self) + '\" is neither a number of nodes nor a percentage: ' + \
                (string(self).matches('^[0-9]{1,9}$') \
                ? 'write ' + string(self) + ' without quotes for nodes, or \"' + string(self) + '%\" for a percentage' \
                : 'write a number such as 2, or a percentage such as \"25%\"')",
        },
    ])
}

/// An IP address or a DNS name.
pub(crate) fn host() -> Rule {
    Rule::new("isIP(self) || !format.dns1123Subdomain().validate(self).hasValue()")
        .message(message("must be an IP address or a DNS name"))
}

/// Each built-in probe may be listed once.
pub(crate) fn built_in_probes_once() -> Rule {
    Rule::new(
        "self.all(probe, !has(probe.builtIn) || \
        self.exists_one(other, has(other.builtIn) && other.builtIn == probe.builtIn))",
    )
    .message(message("each built-in probe may be listed only once"))
}

/// A duration in `selfSignConfiguration`, where kubernetes-nmstate accepts any that Go can parse.
pub(crate) fn go_duration() -> Rule {
    Rule::new(r"self.matches('^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') && self.matches('[1-9]')")
        .message(message("must be a duration such as \"24h\" or \"1h30m\", longer than zero"))
}

fn message(text: impl Into<String>) -> Message {
    Message::Message(text.into())
}
