//! An nmstate document, stored but not interpreted.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An nmstate document: interfaces, routes, DNS and the rest, as nmstate defines them.
///
/// The API server stores it unchanged: nmstate on the node decides what it may contain, not this API. The order of
/// keys does not matter for equality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State(pub Map<String, Value>);

impl State {
    /// Whether the document is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The document as the JSON value that nmstate reads.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

impl From<Map<String, Value>> for State {
    fn from(document: Map<String, Value>) -> Self {
        Self(document)
    }
}

impl JsonSchema for State {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "State".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> State {
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_document_comes_back_as_it_was() {
        let document = json!({ "interfaces": [{ "name": "eth1", "mtu": 9000, "x-unknown": null }] });
        assert_eq!(serde_json::to_value(read(document.clone())).unwrap(), document);
        assert_eq!(read(document.clone()).into_value(), document);
    }

    #[test]
    fn the_order_of_keys_means_nothing() {
        let one: State = serde_json::from_str(r#"{"a": {"x": 1, "y": 2}, "b": 3}"#).unwrap();
        let other: State = serde_json::from_str(r#"{"b": 3, "a": {"y": 2, "x": 1}}"#).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn only_an_object_is_a_document() {
        for wrong in [json!("interfaces: []"), json!([]), json!(1), json!(null)] {
            assert!(serde_json::from_value::<State>(wrong.clone()).is_err(), "{wrong} was taken");
        }
    }
}
