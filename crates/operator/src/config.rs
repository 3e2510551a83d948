//! What an installation was told when it was installed: the environment of the operator.

use std::collections::BTreeMap;

use crate::{Settings, platform::Gate};

/// What the operator itself was told. What an admin says later is in the NMState.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where handlers and controller run, and what everything is called.
    pub namespace: String,
    /// Put before all names, with a dash.
    pub prefix: Option<String>,
    /// Where the operator itself runs. It never removes its own namespace.
    pub operator_namespace: String,
    /// Where Prometheus runs.
    pub monitoring_namespace: String,
    /// The image of handlers and controller.
    pub image: String,
    /// When nodes fetch it: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// Variables that handlers get as they are, such as how often they try.
    pub handler_environment: BTreeMap<String, String>,
    /// When an NMState is made without anybody asking for it.
    pub gate: Gate,
}

impl Config {
    /// The names that follow from it.
    pub fn settings(&self, allow_node_state_configuration: bool) -> Settings {
        Settings {
            namespace: self.namespace.clone(),
            prefix: self.prefix.clone(),
            allow_node_state_configuration,
        }
    }
}
