//! The root object of a kind: metadata, spec and status.
//!
//! kube's derive makes `spec` a required field, but every `spec` of this API may be absent: enactments and node states
//! made by kubernetes-nmstate have none, and a watch that cannot parse one of them would stall. Hence this macro. It also
//! makes `crd()` return the complete definition, with all its versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// A kind as JSON. An empty spec or status is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire<'a, Spec, Status> {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub metadata: &'a ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<&'a Spec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'a Status>,
}

/// `None` for a default value.
pub(crate) fn non_default<T: Default + PartialEq>(value: &T) -> Option<&T> {
    (!is_default(value)).then_some(value)
}

/// For `skip_serializing_if`: a field with its default value is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares the root object of a kind, in the version that our clients use.
macro_rules! kind {
    (
        $(#[$attribute:meta])*
        $kind:ident, $plural:ident, version $version:literal, short names $short:expr;
        $(#[$spec_attribute:meta])*
        spec: $spec:ty,
        $(#[$status_attribute:meta])*
        status: $status:ty,
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize, ::kube::KubeSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$attribute])*
        pub struct $kind {
            /// Name, labels, annotations, owners.
            #[schemars(skip)]
            #[serde(default)]
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $(#[$spec_attribute])*
            #[serde(default, skip_serializing_if = "crate::kind::is_default")]
            pub spec: $spec,
            $(#[$status_attribute])*
            #[serde(default, skip_serializing_if = "crate::kind::is_default")]
            pub status: $status,
        }

        impl $kind {
            const KIND: &'static str = stringify!($kind);
            const API_VERSION: &'static str = concat!("nmstate.io/", $version);

            /// An object with a name and a spec that is not yet on the API server.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    name: Some(name.to_owned()),
                    ..Default::default()
                };
                Self { metadata, spec, status: Default::default() }
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::kind::Wire {
                    api_version: Self::API_VERSION,
                    kind: Self::KIND,
                    metadata: &self.metadata,
                    spec: $crate::kind::non_default(&self.spec),
                    status: $crate::kind::non_default(&self.status),
                }
                .serialize(serializer)
            }
        }

        impl ::kube::Resource for $kind {
            type DynamicType = ();
            type Scope = ::kube::core::ClusterResourceScope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                Self::KIND.into()
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                $crate::names::GROUP.into()
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                stringify!($plural).into()
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl ::kube::CustomResourceExt for $kind {
            fn crd() -> ::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
                $crate::crds::$plural()
            }

            fn crd_name() -> &'static str {
                concat!(stringify!($plural), ".nmstate.io")
            }

            fn api_resource() -> ::kube::core::ApiResource {
                ::kube::core::ApiResource::erase::<Self>(&())
            }

            fn shortnames() -> &'static [&'static str] {
                $short
            }
        }
    };
}
pub(crate) use kind;
