//! A Kubernetes object of any kind that the operator creates.

use k8s_openapi::{
    Resource as _,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration,
        },
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Namespace, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::kinds::Kind;

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        /// An object to apply. It serializes with its `apiVersion` and `kind`.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Object {
            $(
                #[doc = concat!("A ", stringify!($kind), ".")]
                $kind(Box<$kind>),
            )*
            /// One of a kind that only some clusters have.
            Foreign(Box<ForeignObject>),
        }

        $(
            impl From<$kind> for Object {
                fn from(object: $kind) -> Self {
                    Self::$kind(Box::new(object))
                }
            }
        )*

        impl Object {
            /// The API version, such as `rbac.authorization.k8s.io/v1`.
            pub fn api_version(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $kind::API_VERSION,)*
                    Self::Foreign(object) => object.api_version,
                }
            }

            /// The kind, such as `ClusterRole`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $kind::KIND,)*
                    Self::Foreign(object) => object.kind,
                }
            }

            fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => &object.metadata,)*
                    Self::Foreign(object) => &object.metadata,
                }
            }

            pub(crate) fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self {
                    $(Self::$kind(object) => &mut object.metadata,)*
                    Self::Foreign(object) => &mut object.metadata,
                }
            }
        }
    };
}

objects!(
    ClusterRole,
    ClusterRoleBinding,
    ConfigMap,
    CustomResourceDefinition,
    DaemonSet,
    Deployment,
    MutatingWebhookConfiguration,
    Namespace,
    NetworkPolicy,
    PodDisruptionBudget,
    Role,
    RoleBinding,
    Service,
    ServiceAccount,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
);

/// An object of a kind for which there is no Rust type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignObject {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub metadata: ObjectMeta,
    /// Everything else: usually `spec`.
    #[serde(flatten)]
    pub contents: Map<String, Value>,
}

impl ForeignObject {
    /// An object with a `spec`.
    pub fn new(kind: &Kind, metadata: ObjectMeta, spec: Value) -> Self {
        Self {
            api_version: kind.api_version,
            kind: kind.kind,
            metadata,
            contents: Map::from_iter([("spec".to_owned(), spec)]),
        }
    }
}

impl From<ForeignObject> for Object {
    fn from(object: ForeignObject) -> Self {
        Self::Foreign(Box::new(object))
    }
}

impl Object {
    /// The name of the object.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// The namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata().namespace.as_deref()
    }
}
