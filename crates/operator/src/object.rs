//! An object of Kubernetes of any of the kinds that are made here.

use k8s_openapi::{
    Resource as _,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration,
        },
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        /// An object to be applied. It is written with its `apiVersion` and `kind`.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Object {
            $(
                #[doc = concat!("A ", stringify!($kind), ".")]
                $kind(Box<$kind>),
            )*
        }

        $(
            impl From<$kind> for Object {
                fn from(object: $kind) -> Self {
                    Self::$kind(Box::new(object))
                }
            }
        )*

        impl Object {
            /// The version of the API that the object is written in, such as `rbac.authorization.k8s.io/v1`.
            pub fn api_version(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $kind::API_VERSION,)*
                }
            }

            /// The kind, such as `ClusterRole`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $kind::KIND,)*
                }
            }

            fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => &object.metadata,)*
                }
            }
        }
    };
}

objects!(
    ClusterRole,
    ClusterRoleBinding,
    MutatingWebhookConfiguration,
    Namespace,
    Role,
    RoleBinding,
    ServiceAccount,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
);

impl Object {
    /// What the object is called.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// The namespace it is in; `None` if it is one of the whole cluster.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata().namespace.as_deref()
    }
}
