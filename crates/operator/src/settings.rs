//! The settings of an installation, and the names of objects that follow from them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_api::names;

/// The settings on which the objects without processes depend, and from which the names of all objects follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of handlers and controller.
    pub namespace: String,
    /// Put before all names, followed by a dash.
    pub prefix: Option<String>,
    /// Whether admins may configure a node in its NodeNetworkState: `NMState.spec.allowNodeStateConfiguration`.
    pub allow_node_state_configuration: bool,
    /// Whether desired states may have scripts that run as root on the nodes: `NMState.spec.allowDispatchScripts`.
    pub allow_dispatch_scripts: bool,
    /// Whether the controller writes the CA bundle into the webhook configurations itself: only where no operator does.
    pub controller_injects_ca_bundle: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "nmstate".to_owned(),
            prefix: None,
            allow_node_state_configuration: false,
            allow_dispatch_scripts: false,
            controller_injects_ca_bundle: false,
        }
    }
}

impl Settings {
    /// The ServiceAccount of the handlers.
    pub fn handler_account(&self) -> String {
        self.named("nmstate-handler")
    }

    /// The ServiceAccount of the controller.
    pub fn controller_account(&self) -> String {
        self.named("nmstate-controller")
    }

    /// The Lease by which the controllers elect a leader.
    pub fn leader_lease(&self) -> String {
        self.named("nmstate-controller")
    }

    /// The Secret with the certificate authority of the webhook.
    pub fn authority_secret(&self) -> String {
        self.named("nmstate-ca")
    }

    /// The Secret with the certificate of the webhook, named like its Service.
    pub fn certificate_secret(&self) -> String {
        self.webhook_service()
    }

    /// The ConfigMap in which the controllers publish the CA bundle of the webhook.
    pub fn ca_bundle_config_map(&self) -> String {
        self.named("nmstate-ca-bundle")
    }

    /// The Service by which the API server calls the webhook.
    pub fn webhook_service(&self) -> String {
        self.named("nmstate-webhook")
    }

    /// The webhook configurations, both of them.
    pub fn webhook_configuration(&self) -> String {
        self.named("nmstate")
    }

    /// The DaemonSet of the handlers.
    pub fn handler_workload(&self) -> String {
        self.named("nmstate-handler")
    }

    /// The Deployment of the controller, by the name that users of kubernetes-nmstate wait for.
    pub fn controller_workload(&self) -> String {
        self.named("nmstate-webhook")
    }

    /// The operator: its Deployment, its account, its lease.
    pub fn operator(&self) -> String {
        self.named("nmstate-operator")
    }

    /// A name with the prefix, if there is one.
    pub(crate) fn named(&self, name: &str) -> String {
        match &self.prefix {
            Some(prefix) => format!("{prefix}-{name}"),
            None => name.to_owned(),
        }
    }

    /// The metadata of a cluster-scoped object.
    pub(crate) fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.named(name)),
            labels: Some([(names::APP_LABEL.to_owned(), names::APP.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    /// The metadata of an object in a namespace.
    pub(crate) fn metadata_in(&self, namespace: &str, name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some(namespace.to_owned()), ..self.metadata(name) }
    }
}
