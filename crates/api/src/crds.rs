//! The four `CustomResourceDefinition`s, with every version that is served.
//!
//! All versions of a kind have the same schema, so nothing is converted between them. The stored version is the one that
//! existing clusters have stored already.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition,
        CustomResourceDefinitionNames, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
        CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation,
        JSONSchemaProps,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{CustomResourceExt, Resource};
use serde_json::json;

use crate::{
    NMState, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy, NodeNetworkState, names,
    schema,
};

/// All four, ordered by name.
pub fn all() -> [CustomResourceDefinition; 4] {
    [
        nmstates(),
        nodenetworkconfigurationenactments(),
        nodenetworkconfigurationpolicies(),
        nodenetworkstates(),
    ]
}

/// The definition of [`NMState`].
pub fn nmstates() -> CustomResourceDefinition {
    let schema = schema::of::<NMState>();
    let old = Version {
        deprecation: Deprecation::WithWarning("nmstate/v1beta1 deprecated, use nmstate/v1 instead"),
        schema: without_metrics_default(schema.clone()),
        ..Version::new("v1beta1", schema.clone())
    };
    define::<NMState>([Version::new("v1", schema).stored(), old], &[STATUS, REASON])
}

/// The definition of [`NodeNetworkConfigurationPolicy`].
pub fn nodenetworkconfigurationpolicies() -> CustomResourceDefinition {
    let schema = schema::of::<NodeNetworkConfigurationPolicy>();
    let old = Version { deprecation: Deprecation::Plain, ..Version::new("v1beta1", schema.clone()) };
    define::<NodeNetworkConfigurationPolicy>([Version::new("v1", schema).stored(), old], &[STATUS, REASON])
}

/// The definition of [`NodeNetworkConfigurationEnactment`].
pub fn nodenetworkconfigurationenactments() -> CustomResourceDefinition {
    let schema = schema::of::<NodeNetworkConfigurationEnactment>();
    define::<NodeNetworkConfigurationEnactment>(
        [Version::new("v1", schema.clone()), Version::new("v1beta1", schema).stored()],
        &[STATUS, STATUS_AGE, REASON],
    )
}

/// The definition of [`NodeNetworkState`].
pub fn nodenetworkstates() -> CustomResourceDefinition {
    let schema = schema::of::<NodeNetworkState>();
    define::<NodeNetworkState>(
        [Version::new("v1", schema.clone()), Version::new("v1beta1", schema).stored()],
        &[],
    )
}

/// Removes the default of `metricsConfiguration`, which only `v1` has.
fn without_metrics_default(mut schema: JSONSchemaProps) -> JSONSchemaProps {
    let metrics = schema
        .properties
        .as_mut()
        .and_then(|root| root.get_mut("spec"))
        .and_then(|spec| spec.properties.as_mut())
        .and_then(|spec| spec.get_mut("metricsConfiguration"));
    if let Some(metrics) = metrics {
        metrics.default = None;
    }
    schema
}

/// What differs between the versions of a kind.
struct Version {
    name: &'static str,
    stored: bool,
    deprecation: Deprecation,
    schema: JSONSchemaProps,
}

enum Deprecation {
    None,
    /// With the default warning of the API server.
    Plain,
    WithWarning(&'static str),
}

impl Version {
    fn new(name: &'static str, schema: JSONSchemaProps) -> Self {
        Self { name, stored: false, deprecation: Deprecation::None, schema }
    }

    fn stored(self) -> Self {
        Self { stored: true, ..self }
    }

    fn served(self, columns: &[Column]) -> CustomResourceDefinitionVersion {
        let (deprecated, deprecation_warning) = match self.deprecation {
            Deprecation::None => (None, None),
            Deprecation::Plain => (Some(true), None),
            Deprecation::WithWarning(text) => (Some(true), Some(text.to_owned())),
        };
        CustomResourceDefinitionVersion {
            name: self.name.to_owned(),
            served: true,
            storage: self.stored,
            deprecated,
            deprecation_warning,
            additional_printer_columns: (!columns.is_empty())
                .then(|| columns.iter().map(Column::definition).collect()),
            schema: Some(CustomResourceValidation { open_api_v3_schema: Some(self.schema) }),
            subresources: Some(CustomResourceSubresources {
                status: Some(CustomResourceSubresourceStatus(json!({}))),
                scale: None,
            }),
            selectable_fields: None,
        }
    }
}

/// A column of `kubectl get`. The name also serves as description.
struct Column {
    name: &'static str,
    type_: &'static str,
    path: &'static str,
}

const STATUS: Column =
    Column { name: "Status", type_: "string", path: r#".status.conditions[?(@.status=="True")].type"# };
const STATUS_AGE: Column = Column {
    name: "Status Age",
    type_: "date",
    path: r#".status.conditions[?(@.status=="True")].lastTransitionTime"#,
};
const REASON: Column =
    Column { name: "Reason", type_: "string", path: r#".status.conditions[?(@.status=="True")].reason"# };

impl Column {
    fn definition(&self) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: self.type_.to_owned(),
            json_path: self.path.to_owned(),
            description: Some(self.name.to_owned()),
            ..CustomResourceColumnDefinition::default()
        }
    }
}

fn define<Kind>(versions: [Version; 2], columns: &[Column]) -> CustomResourceDefinition
where
    Kind: Resource<DynamicType = ()> + CustomResourceExt,
{
    let kind = Kind::kind(&()).into_owned();
    let short_names: Vec<String> = Kind::shortnames().iter().map(|&name| name.to_owned()).collect();
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(Kind::crd_name().to_owned()), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: names::GROUP.to_owned(),
            scope: "Cluster".to_owned(),
            names: CustomResourceDefinitionNames {
                plural: Kind::plural(&()).into_owned(),
                singular: Some(kind.to_lowercase()),
                list_kind: Some(format!("{kind}List")),
                short_names: (!short_names.is_empty()).then_some(short_names),
                kind,
                categories: None,
            },
            versions: versions.into_iter().map(|version| version.served(columns)).collect(),
            conversion: Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None }),
            preserve_unknown_fields: None,
        },
        status: None,
    }
}

#[cfg(test)]
mod tests;
