//! What a thief of a token would try, and what a handler needs to do.

use rig::request::Request;
use serde_json::{Value, json};

use super::{
    DOTTED, ENACTMENTS, HANDLER, OTHER, OWN, STATES,
    attempts::{Read, Target},
    cluster::{enactment_without_order, owner, state},
};

const NMSTATE: &str = "nmstate.io/v1";
const RIGHTS: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Objects that a handler must not access: those of other nodes, and those that belong to no node.
pub fn not_for_handlers() -> Vec<Target> {
    let (list_and_watch, get): (&[Read], &[Read]) = (&[Read::List, Read::Watch], &[Read::Get]);
    vec![
        Target::new("nmstate.io/v1beta1", "NodeNetworkState", "nodenetworkstates", OTHER)
            .with_new_name("worker2")
            .with_status(json!({"handlerNmstateVersion": "stolen"}))
            .readable(list_and_watch),
        Target::new(NMSTATE, "NodeNetworkState", "nodenetworkstates", DOTTED)
            .with_new_name("worker2")
            .with_status(json!({"handlerNmstateVersion": "stolen"}))
            .readable(list_and_watch),
        Target::new(
            NMSTATE,
            "NodeNetworkConfigurationEnactment",
            "nodenetworkconfigurationenactments",
            "worker1.p",
        )
        .with_status(json!({"policyGeneration": 99}))
        .readable(list_and_watch),
        Target::new(
            "nmstate.io/v1beta1",
            "NodeNetworkConfigurationEnactment",
            "nodenetworkconfigurationenactments",
            "worker.1.p",
        )
        .with_status(json!({"policyGeneration": 99}))
        .readable(list_and_watch),
        Target::new(NMSTATE, "NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies", "p")
            .with_status(json!({"unavailableNodeCount": 99})),
        Target::new(
            "nmstate.io/v1beta1",
            "NodeNetworkConfigurationPolicy",
            "nodenetworkconfigurationpolicies",
            "p",
        )
        .with_status(json!({"unavailableNodeCount": 99})),
        Target::new(NMSTATE, "NMState", "nmstates", "nmstate").with_status(json!({"conditions": []})),
        Target::new("v1", "Node", "nodes", OTHER).with_status(json!({"conditions": []})).readable(get),
        Target::new("v1", "Namespace", "namespaces", "nmstate").with_status(json!({"phase": "Terminating"})),
        Target::new("v1", "Secret", "namespaces/nmstate/secrets", "nmstate-ca"),
        Target::new("v1", "ConfigMap", "namespaces/nmstate/configmaps", "settings"),
        Target::new("v1", "Pod", "namespaces/nmstate/pods", "nmstate-handler-worker1")
            .with_status(json!({"phase": "Failed"})),
        Target::new("v1", "ServiceAccount", "namespaces/nmstate/serviceaccounts", "nmstate-controller"),
        Target::new("coordination.k8s.io/v1", "Lease", "namespaces/nmstate/leases", "nmstate-controller"),
        Target::new("coordination.k8s.io/v1", "Lease", "namespaces/kube-node-lease/leases", OTHER)
            .readable(get),
        Target::new(RIGHTS, "ClusterRole", "clusterroles", "nmstate-handler"),
        Target::new(RIGHTS, "ClusterRoleBinding", "clusterrolebindings", "nmstate-handler"),
        Target::new(RIGHTS, "Role", "namespaces/nmstate/roles", "nmstate-controller"),
        Target::new(RIGHTS, "RoleBinding", "namespaces/nmstate/rolebindings", "nmstate-controller"),
        Target::new(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "nmstate"),
        Target::new(
            ADMISSION,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "nmstate",
        ),
        Target::new(
            ADMISSION,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            "nmstate-node-guard-states",
        )
        .with_status(json!({"observedGeneration": 99})),
        Target::new(
            ADMISSION,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "nmstate-node-guard-states-binding",
        ),
        Target::new(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "nodenetworkstates.nmstate.io",
        )
        .with_status(json!({"storedVersions": []})),
    ]
}

/// Ways around the rights: to become another user, or to make another user act.
pub fn ways_around() -> Vec<Request> {
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "nmstate-handler-worker1"});
    let token = |bound: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "boundObjectRef": bound}});
    let accounts = "/api/v1/namespaces/nmstate/serviceaccounts";
    let pod = "/api/v1/namespaces/nmstate/pods/nmstate-handler-worker1";
    let report = |path: &str| Request::merge(path, json!({"status": {"handlerNmstateVersion": "stolen"}}));
    let review = |kind: &str| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    vec![
        Request::create(&format!("{accounts}/nmstate-handler/token"), token(bound)),
        Request::create(&format!("{accounts}/nmstate-controller/token"), token(Value::Null)),
        Request::create(&format!("{pod}/exec?command=id"), Value::Null),
        Request::create(&format!("{pod}/eviction"), json!({"apiVersion": "policy/v1", "kind": "Eviction"})),
        Request::create(&format!("{pod}/ephemeralcontainers"), Value::Null),
        Request::read(&format!("{pod}/log")),
        Request::read(&format!("/api/v1/nodes/{OTHER}/proxy/pods")),
        Request::create(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}),
        ),
        Request::create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review("SubjectAccessReview")),
        Request::create("/api/v1/namespaces/default/events", json!({"apiVersion": "v1", "kind": "Event"})),
        report(&format!("{STATES}/{OTHER}/status")).impersonating("system:admin"),
        report(&format!("{STATES}/{OTHER}/status")).impersonating(HANDLER),
        report(&format!("{STATES}/{OTHER}/status")).impersonating(HANDLER).with_node_claim(OTHER),
        Request::read("/metrics"),
    ]
}

/// The requests that a handler makes.
pub fn work_of_handler() -> Vec<Request> {
    let (own_state, own_enactment) = (format!("{STATES}/{OWN}"), format!("{ENACTMENTS}/{OWN}.p"));
    let mut with_metadata = state(OWN);
    with_metadata["metadata"]["ownerReferences"] = json!([owner(OWN)]);
    with_metadata["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "tests"});
    let mut reported = state(OWN);
    reported["spec"] = Value::Null;
    reported["status"] = json!({"handlerNmstateVersion": "2.2.62"});
    let mut enactment = enactment_without_order(&format!("{OWN}.p"), &Value::Null);
    enactment["status"] = json!({"policyGeneration": 1});
    let by_name = format!("{STATES}?fieldSelector=metadata.name%3D{OWN}");
    let by_label = format!("{ENACTMENTS}?labelSelector=nmstate.io%2Fnode%3D{OWN}");
    vec![
        Request::read("/version"),
        Request::read(&format!("/api/v1/nodes/{OWN}")),
        Request::read(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{OWN}")),
        Request::read(&by_name),
        Request::watch(&by_name),
        Request::read(&by_label),
        Request::watch(&by_label),
        // The first one creates it.
        Request::apply(&own_state, with_metadata.clone()),
        Request::apply(&own_state, with_metadata),
        Request::apply(&format!("{own_state}/status"), reported),
        Request::merge(&format!("{own_state}/status"), json!({"status": {"handlerNmstateVersion": null}})),
        Request::apply(&format!("{own_enactment}/status"), enactment),
        Request::merge(&format!("{own_enactment}/status"), json!({"status": {"policyGeneration": 2}})),
    ]
}
