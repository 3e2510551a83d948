//! Nodes and pods with only the fields that are needed, so that the rest is never held in memory.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::Deserialize;

/// A node: its metadata, and whether it is Ready and schedulable.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimNode {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Status {
    fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == "Ready")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl SlimNode {
    pub(crate) fn is_unschedulable(&self) -> bool {
        self.spec.unschedulable
    }

    /// Whether it is Ready, and since when.
    pub(crate) fn readiness(&self) -> (bool, Option<Timestamp>) {
        let ready = self.status.ready();
        let since = ready.and_then(|condition| condition.last_transition_time.as_ref());
        (ready.is_some_and(|condition| condition.status == "True"), since.map(|time| time.0))
    }
}

/// A pod: the node that it runs on, and whether it is ready.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimPod {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: Option<String>,
}

impl SlimPod {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.ready().is_some_and(|condition| condition.status == "True")
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }
}

/// Gives a reduced type the API path of the whole kind.
macro_rules! reads_like {
    ($slim:ty, $whole:ty) => {
        impl Resource for $slim {
            type DynamicType = ();
            type Scope = <$whole as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole as Resource>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole as Resource>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole as Resource>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole as Resource>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

reads_like!(SlimNode, Node);
reads_like!(SlimPod, Pod);
