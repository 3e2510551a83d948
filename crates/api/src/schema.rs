//! From Rust types to the structural schemas that the API server requires.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::{
    JsonSchema, Schema, SchemaGenerator,
    generate::SchemaSettings,
    json_schema,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

use crate::rules;

/// The schema of a kind.
#[expect(clippy::expect_used, reason = "the schema follows from the types alone, and a test builds each one")]
pub(crate) fn of<Kind: JsonSchema>() -> JSONSchemaProps {
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(OptionMeansAbsent)
        .with_transform(StructuralSchemaRewriter)
        .with_transform(ReadableText)
        .into_generator()
        .into_root_schema_for::<Kind>();
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        // The API server adds the rest; the name is listed so that a rule can refer to it.
        let metadata = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        fields.insert("metadata".to_owned(), metadata);
    }
    serde_json::from_value(schema.to_value()).expect("a structural schema")
}

/// An optional field may be absent but not `null`: the API server then drops a `null` that a user wrote, and validation
/// rules need not handle it.
#[derive(Clone)]
struct OptionMeansAbsent;

impl Transform for OptionMeansAbsent {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("nullable");
        if object.get("default") == Some(&Value::Null) {
            object.remove("default");
        }
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        if let Some(Value::Array(choices)) = object.get("anyOf")
            && let [Value::Object(some), none] = choices.as_slice()
            && none.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty)
        {
            // The description of the field takes precedence over that of its type.
            let some = some.clone();
            object.remove("anyOf");
            for (key, value) in some {
                object.entry(key).or_insert(value);
            }
        }
    }
}

/// The text of `kubectl explain`: paragraphs instead of source lines, and no names of Rust types.
#[derive(Clone)]
struct ReadableText;

impl Transform for ReadableText {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("title");
        drop_foreign_format(object);
        if let Some(Value::String(description)) = object.get_mut("description") {
            *description = reflow(description);
        }
    }
}

/// The API server has no unsigned formats; `minimum` does the same.
fn drop_foreign_format(object: &mut Map<String, Value>) {
    if object.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        object.remove("format");
    }
}

/// Joins the lines of each paragraph; an item of a list stays on its own line.
fn reflow(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim_end) {
        let new_line = line.is_empty() || line.starts_with("- ") || out.ends_with('\n');
        if !out.is_empty() {
            out.push(if new_line { '\n' } else { ' ' });
        }
        out.push_str(line.trim_start());
    }
    out
}

/// A Kubernetes type without its descriptions: they fill pages, and `kubectl explain pod.spec` has them, too.
pub(crate) fn without_descriptions<Type: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    fn remove(schema: &mut Schema) {
        schema.remove("description");
        transform_subschemas(&mut remove, schema);
    }
    let mut schema = generator.subschema_for::<Type>();
    remove(&mut schema);
    schema
}

/// A number or a percentage of nodes.
pub(crate) fn count_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 64,
        "x-kubernetes-validations": rules::count_or_percent(),
    })
}

/// Values by name, of any type.
pub(crate) fn values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// Values by name, of any type, by node.
pub(crate) fn values_by_node(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": values(generator) })
}

/// The equality selector of a policy.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    labels("nodeSelector")
}

/// Labels with their values. The maximum length is above that of a label value, so that the rule, which has the better
/// message, refuses the value; it is bounded because the cost of a rule grows with the length.
fn labels(field: &str) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {
            "type": "string",
            "maxLength": 253,
            "x-kubernetes-validations": [{
                "rule": "!format.labelValue().validate(self).hasValue()",
                "message": format!("{field} values must be valid label values"),
            }],
        },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, !format.qualifiedName().validate(key).hasValue())",
            "message": format!("{field} keys must be valid qualified names"),
        }],
    })
}

/// A label selector of Kubernetes, with the checks that the API server makes for built-in kinds but not for custom
/// resources.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let mut match_labels = labels("matchLabels");
    match_labels.insert(
        "description".to_owned(),
        "Labels that a node must have, each with exactly this value.".into(),
    );
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": match_labels,
            "matchExpressions": {
                "description": "Requirements on the labels of a node, all of which must be met.",
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The key of the label.",
                            "type": "string",
                            "maxLength": 317,
                            "x-kubernetes-validations": [{
                                "rule": "!format.qualifiedName().validate(self).hasValue()",
                                "message": "must be a valid qualified name",
                            }],
                        },
                        "operator": {
                            "description": "In or NotIn (the value of the label is, or is not, one of values), \
                                Exists or DoesNotExist (the node has, or does not have, the label).",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values for In and NotIn; none for Exists and DoesNotExist.",
                            "type": "array",
                            "maxItems": 256,
                            "x-kubernetes-list-type": "atomic",
                            "items": {
                                "type": "string",
                                "maxLength": 63,
                                "x-kubernetes-validations": [{
                                    "rule": "!format.labelValue().validate(self).hasValue()",
                                    "message": "must be a valid label value",
                                }],
                            },
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "values must be given for In and NotIn, and only for them",
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_reflowed_by_paragraph() {
        for (source, shown) in [
            ("One line.", "One line."),
            ("Two\nlines.", "Two lines."),
            ("A paragraph\nof two lines.\n\nAnother\none.", "A paragraph of two lines.\n\nAnother one."),
            ("A list:\n- one\n  and more\n- two", "A list:\n- one and more\n- two"),
        ] {
            assert_eq!(reflow(source), shown);
        }
    }
}
