//! Objects with holes in them, as templates of Helm.
//!
//! A hole is a text that occurs nowhere else. It begins with a character that makes YAML quote the whole text, so that
//! whatever fills it stays a text.

use std::fmt::Write as _;

use anyhow::Result;
use knmstate_files::yaml;
use serde_json::Value;

/// What is not known before a user installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole {
    Prefix,
    ReleaseNamespace,
    HandlerNamespace,
    MonitoringNamespace,
    Image,
    PullPolicy,
    MaxRetries,
    MaxBackoff,
    InitialBackoff,
    AutoCreate,
    Platforms,
    RemovalTimeout,
    RemovalDeadline,
}

/// Each with its mark, and what fills it.
const HOLES: [(Hole, &str, &str); 13] = [
    (Hole::Prefix, "@prefix@", "{{ .Values.prefix }}"),
    (Hole::ReleaseNamespace, "@release@", "{{ .Release.Namespace }}"),
    (Hole::HandlerNamespace, "@handler@", r#"{{ include "knmstate.handlerNamespace" . }}"#),
    (Hole::MonitoringNamespace, "@monitoring@", "{{ .Values.monitoringNamespace }}"),
    (Hole::Image, "@image@", r#"{{ include "knmstate.image" . }}"#),
    (Hole::PullPolicy, "@pullPolicy@", "{{ .Values.image.pullPolicy }}"),
    (Hole::MaxRetries, "@maxRetries@", "{{ int .Values.retries.max }}"),
    (Hole::MaxBackoff, "@maxBackoff@", "{{ int .Values.retries.maxBackoffSeconds }}"),
    (Hole::InitialBackoff, "@initialBackoff@", "{{ int .Values.retries.initialBackoffSeconds }}"),
    (Hole::AutoCreate, "@autoCreate@", "{{ .Values.autoCreate.mode }}"),
    (Hole::Platforms, "@platforms@", r#"{{ join "," .Values.autoCreate.platforms }}"#),
    (Hole::RemovalTimeout, "@removalTimeout@", "{{ int .Values.removal.timeoutSeconds }}"),
    (Hole::RemovalDeadline, "@removalDeadline@", "{{ add .Values.removal.timeoutSeconds 60 }}"),
];

/// A prefix in a name has a dash after it, if there is a prefix.
const PREFIX_IN_NAME: (&str, &str) = ("@prefix@-", r#"{{ include "knmstate.prefix" . }}"#);

impl Hole {
    pub fn mark(self) -> &'static str {
        HOLES.iter().find(|(hole, _, _)| *hole == self).map_or("", |(_, mark, _)| mark)
    }
}

/// In the place of an object or a list: the value of this name.
pub fn block(value: &str) -> String {
    format!("@block:{value}@")
}

/// The same, with nothing at all where that value is empty.
pub fn optional_block(value: &str) -> String {
    format!("@optional:{value}@")
}

/// A file of templates.
pub fn template(objects: &[Value]) -> Result<String> {
    let written = objects.iter().map(|object| {
        let text: String = yaml::document(object)?.lines().map(line).collect();
        Ok(format!("---\n{}", without_empty_prefix(&text)))
    });
    written.collect()
}

/// The variable of the prefix is there where there is one: the API server drops what is empty.
fn without_empty_prefix(text: &str) -> String {
    let mut lines = text.lines();
    let mut written = String::new();
    while let Some(line) = lines.next() {
        let margin = " ".repeat(line.len() - line.trim_start().len());
        if line.trim_start() == "- name: HANDLER_PREFIX" {
            let value = lines.next().unwrap_or_default();
            let both = format!("{line}\n{value}\n").replace(".Values.prefix", ".");
            let _ = write!(written, "{margin}{{{{- with .Values.prefix }}}}\n{both}{margin}{{{{- end }}}}\n");
        } else {
            written.extend([line, "\n"]);
        }
    }
    written
}

fn line(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let margin = " ".repeat(indent);
    if let Some((key, mark)) = line.trim_start().split_once(": ") {
        let mark = mark.trim_matches(['"', '\'']).trim_matches('@');
        let deeper = indent + 2;
        if let Some(value) = mark.strip_prefix("block:") {
            return format!(
                "{margin}{key}:\n{margin}  {{{{- toYaml .Values.{value} | nindent {deeper} }}}}\n"
            );
        }
        if let Some(value) = mark.strip_prefix("optional:") {
            return format!(
                "{margin}{{{{- with .Values.{value} }}}}\n{margin}{key}:\n{margin}  {{{{- toYaml . | nindent \
                 {deeper} }}}}\n{margin}{{{{- end }}}}\n"
            );
        }
    }
    let holes = HOLES.iter().map(|(_, mark, filling)| (*mark, *filling));
    let filled = [PREFIX_IN_NAME]
        .into_iter()
        .chain(holes)
        .fold(line.to_owned(), |line, (mark, filling)| line.replace(mark, filling));
    // A number, which only Kubernetes does not take as a text.
    let number = filled.contains("activeDeadlineSeconds:");
    let filled = if number { filled.replace(['"', '\''], "") } else { filled };
    format!("{filled}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn holes_become_expressions_and_everything_else_stays() {
        let object = json!({
            "name": "@prefix@-nmstate-operator",
            "prefix": "@prefix@",
            "namespace": Hole::ReleaseNamespace.mark(),
            "list": [Hole::Image.mark(), "plain"],
            "below": {"tolerations": block("tolerations"), "secrets": optional_block("imagePullSecrets")},
            "activeDeadlineSeconds": Hole::RemovalDeadline.mark(),
            "env": [{"name": "HANDLER_PREFIX", "value": "@prefix@"}, {"name": "OTHER", "value": "x"}],
        });
        let expected = r#"---
name: "{{ include "knmstate.prefix" . }}nmstate-operator"
prefix: "{{ .Values.prefix }}"
namespace: "{{ .Release.Namespace }}"
list:
- "{{ include "knmstate.image" . }}"
- plain
below:
  tolerations:
    {{- toYaml .Values.tolerations | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  secrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
activeDeadlineSeconds: {{ add .Values.removal.timeoutSeconds 60 }}
env:
{{- with .Values.prefix }}
- name: HANDLER_PREFIX
  value: "{{ . }}"
{{- end }}
- name: OTHER
  value: x
"#;
        let found = template(&[object]).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_hole_has_a_mark_of_its_own() {
        for (hole, mark, _) in HOLES {
            assert_eq!(hole.mark(), mark);
            assert_eq!(HOLES.iter().filter(|(_, other, _)| other.contains(mark)).count(), 1, "{mark}");
        }
    }
}
