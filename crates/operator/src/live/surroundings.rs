//! The platform and the optional kinds of the cluster. They change rarely, and are read from time to time instead of being
//! watched.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::ClusterRole};
use knmstate_client::{
    call::{CallError, within_limit},
    discovery::kinds_of,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;
use std::collections::BTreeSet;

use crate::{Config, kinds::KINDS, operands::CREATED_BY_OPERATOR};

const OPENSHIFT_CONFIG: &str = "config.openshift.io/v1";

/// The platform and the optional kinds of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Surroundings {
    pub openshift: bool,
    pub kinds: BTreeSet<(String, String)>,
    pub cluster_reader: bool,
    pub own_namespace: bool,
    /// The infrastructure provider, as OpenShift names it.
    pub platform: Option<String>,
    /// OpenShift's `APIServer/cluster`, which has the TLS profile.
    pub api_server: Option<Value>,
}

pub(crate) async fn inspect(client: &Client, config: &Config) -> Result<Surroundings, CallError> {
    let security = kinds_of(client, "security.openshift.io/v1").await?;
    let openshift = security.contains("SecurityContextConstraints");
    let mut kinds = BTreeSet::new();
    for kind in KINDS.iter().filter(|kind| !kind.built_in) {
        if kinds_of(client, kind.api_version).await?.contains(kind.kind) {
            kinds.insert((kind.api_version.to_owned(), kind.kind.to_owned()));
        }
    }
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let cluster_reader = within_limit(roles.get_opt("cluster-reader")).await?.is_some();
    let configured = kinds_of(client, OPENSHIFT_CONFIG).await?;
    let of = async |kind: &str, plural: &str| {
        if configured.contains(kind) { configuration(client, kind, plural).await } else { Ok(None) }
    };
    let infrastructure = of("Infrastructure", "infrastructures").await?;
    let api_server = of("APIServer", "apiservers").await?;
    Ok(Surroundings {
        openshift,
        kinds,
        cluster_reader,
        own_namespace: may_own_namespace(client, config).await?,
        platform: infrastructure.as_ref().and_then(platform),
        api_server,
    })
}

fn platform(infrastructure: &Value) -> Option<String> {
    let status = &infrastructure["status"];
    let named = status["platformStatus"]["type"].as_str().or(status["platform"].as_str());
    named.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// One of OpenShift's objects called `cluster`.
async fn configuration(client: &Client, kind: &str, plural: &str) -> Result<Option<Value>, CallError> {
    let resource = ApiResource {
        group: "config.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: OPENSHIFT_CONFIG.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    Ok(within_limit(api.get_opt("cluster")).await?.map(|object| object.data))
}

/// Whether the operator may delete the namespace with what it has made: not one that another client has created.
async fn may_own_namespace(client: &Client, config: &Config) -> Result<bool, CallError> {
    if config.namespace == config.operator_namespace {
        return Ok(false);
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = within_limit(namespaces.get_opt(&config.namespace)).await?;
    Ok(namespace.is_none_or(|namespace| namespace.annotations().contains_key(CREATED_BY_OPERATOR)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_platform_is_read_from_both_of_its_places() {
        for (status, expected) in [
            (json!({"platform": "AWS", "platformStatus": {"type": "BareMetal"}}), Some("BareMetal")),
            (json!({"platform": "None"}), Some("None")),
            (json!({}), None),
            (json!({"platform": ""}), None),
        ] {
            assert_eq!(platform(&json!({"status": status})).as_deref(), expected, "{status}");
        }
    }
}
