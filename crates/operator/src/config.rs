//! The configuration of an installation, which the operator reads from its environment.

use std::collections::BTreeMap;

use crate::{Settings, auto_create::AutoCreate};

/// The configuration of the operator. Settings that an admin changes later are in the NMState.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The namespace of handlers and controller.
    pub namespace: String,
    /// Put before all names, followed by a dash.
    pub prefix: Option<String>,
    /// The namespace of the operator, which it never removes.
    pub operator_namespace: String,
    /// The namespace of Prometheus.
    pub monitoring_namespace: String,
    /// The image of handlers and controller.
    pub image: String,
    /// When nodes pull it: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// Environment variables of the handlers, such as the number of retries.
    pub handler_environment: BTreeMap<String, String>,
    /// When to create an NMState without a request by an admin.
    pub auto_create: AutoCreate,
}

impl Config {
    /// The names of objects that follow from it.
    pub fn settings(&self, allow_node_state_configuration: bool) -> Settings {
        Settings {
            namespace: self.namespace.clone(),
            prefix: self.prefix.clone(),
            allow_node_state_configuration,
            allow_dispatch_scripts: false,
            controller_injects_ca_bundle: false,
        }
    }
}
