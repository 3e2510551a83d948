//! The handler's store against a real API server, with no more than the handler's rights.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use knmstate_agent::{KubernetesStore, KubernetesStoreOptions, Orders, ReportedNetwork, Store as _};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationEnactmentStatus as Status,
    NodeNetworkState, names,
};
use knmstate_client::call::CallError;
use knmstate_core::probes::ApiAccess;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::Request,
};
use rig::{ApiServer, BoundTo, Lab, Settings, wait};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

const NODE: &str = "node1";
const LIMIT: Duration = Duration::from_secs(15);

/// For a handler that can write nothing.
const READ_ONLY_RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-only}
rules:
- apiGroups: [nmstate.io]
  resources: [nodenetworkconfigurationenactments, nodenetworkstates]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: read-only}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: read-only}
subjects: [{kind: ServiceAccount, name: read-only, namespace: nmstate}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: read-only, namespace: nmstate}
";

/// A cluster with one node, and what the handler of that node needs.
struct StoreFixture {
    api: ApiServer,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    _lab: Lab,
}

impl StoreFixture {
    async fn start() -> Result<Self> {
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        api.install_product_objects(&Settings::default()).await?;
        api.kubectl_with(READ_ONLY_RIGHTS, ["apply", "-f", "-"]).await?.success()?;
        api.add_ready_node(NODE).await?;
        let (enactments, states) = (Api::all(api.client()), Api::all(api.client()));
        Ok(Self { api, enactments, states, _lab: lab })
    }

    async fn store(&self) -> Result<KubernetesStore> {
        self.store_with(&self.token().await?).await
    }

    /// A store that may write nothing.
    async fn read_only_store(&self) -> Result<KubernetesStore> {
        self.store_with(&self.api.token("nmstate", "read-only", BoundTo::Node(NODE)).await?).await
    }

    async fn token(&self) -> Result<String> {
        self.api.handler_token(NODE).await
    }

    async fn store_with(&self, token: &str) -> Result<KubernetesStore> {
        Ok(KubernetesStore::start(KubernetesStoreOptions {
            config: self.api.config_with_token(token).await?,
            node: NODE.to_owned(),
            relationship_labels: [(names::relationship::PART_OF.to_owned(), "tests".to_owned())].into(),
            now: clock,
        })?)
    }

    /// Writes an order as the controller does.
    async fn order(&self, node: &str, policy: &str, generation: i64) -> Result<()> {
        let enactment = json!({
            "apiVersion": "nmstate.io/v1beta1",
            "kind": "NodeNetworkConfigurationEnactment",
            "metadata": {
                "name": names::enactment_name(node, policy),
                "labels": {names::NODE_LABEL: node, names::POLICY_LABEL: policy},
            },
            "spec": {"nodeName": node, "policyName": policy, "policyGeneration": generation, "permit": "Apply"},
        });
        let name = names::enactment_name(node, policy);
        let request = Request::new(self.enactments.resource_url());
        let request = request.patch(&name, &PatchParams::apply("controller"), &Patch::Apply(enactment))?;
        // The response may be one that cannot be read.
        self.api.client().request_text(request).await?;
        Ok(())
    }

    async fn enactment(&self, policy: &str) -> Result<Enactment> {
        Ok(self.enactments.get(&names::enactment_name(NODE, policy)).await?)
    }

    /// The resource versions of all that a handler writes.
    async fn versions(&self, policy: &str) -> Result<[Option<String>; 2]> {
        Ok([
            self.enactment(policy).await?.resource_version(),
            self.states.get(NODE).await?.resource_version(),
        ])
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is a binary")]
fn clock() -> Timestamp {
    Timestamp::now()
}

fn status(generation: i64, mtu: u32) -> Status {
    let status = json!({
        "policyGeneration": generation,
        "desiredState": {"interfaces": [{"name": "eth1", "mtu": mtu}]},
        "retryCount": {generation.to_string(): 1},
    });
    serde_json::from_value(status).unwrap_or_default()
}

fn network(state: &Value) -> ReportedNetwork {
    ReportedNetwork {
        state: serde_json::from_value(state.clone()).unwrap_or_default(),
        omitted: Vec::new(),
        links: Vec::new(),
        set_aside: Vec::new(),
        nmstate_version: "2.2.62".to_owned(),
        network_manager_version: "1.42.4".to_owned(),
    }
}

fn with_mtu(mtu: u32) -> ReportedNetwork {
    network(&json!({"interfaces": [{"name": "eth1", "mtu": mtu}], "routes": {"config": [], "running": []}}))
}

/// Waits until the orders are these: `policy@generation`, separated by blanks.
async fn until_ordered(orders: &mut watch::Receiver<Option<Arc<Orders>>>, expected: &str) -> Result<()> {
    let shown = |orders: &Option<Arc<Orders>>| {
        orders.as_ref().map(|orders| {
            let shown =
                orders.iter().map(|(policy, order)| format!("{policy}@{}", order.spec.policy_generation));
            shown.collect::<Vec<_>>().join(" ")
        })
    };
    let found =
        timeout(LIMIT, orders.wait_for(|orders| shown(orders).as_deref() == Some(expected))).await.is_ok();
    if !found {
        let found = shown(&orders.borrow());
        anyhow::bail!("the orders are {found:?}, not {expected:?}");
    }
    Ok(())
}

async fn delivered(store: &KubernetesStore) -> Result<()> {
    ensure!(store.flush(LIMIT).await, "not delivered after {LIMIT:?}");
    Ok(())
}

#[tokio::test]
async fn orders_follow_the_enactments_of_the_own_node_only() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    let store = fixture.store().await?;
    let mut orders = store.orders();
    until_ordered(&mut orders, "").await?;
    ensure!(store.api_access() == ApiAccess::Connected);

    fixture.order("node2", "other", 1).await?;
    fixture.order(NODE, "b", 1).await?;
    fixture.order(NODE, "a", 1).await?;
    until_ordered(&mut orders, "a@1 b@1").await?;
    fixture.order(NODE, "b", 2).await?;
    until_ordered(&mut orders, "a@1 b@2").await?;

    orders.mark_unchanged();
    store.report_status("a", status(1, 1500));
    delivered(&store).await?;
    fixture.enactments.delete("node1.b", &DeleteParams::default()).await?;
    timeout(LIMIT, orders.changed()).await??;
    until_ordered(&mut orders, "a@1").await?;
    // The status of `a` came through the same watch before, and was not taken for a change of the orders.
    ensure!(!orders.has_changed()?);
    Ok(())
}

#[tokio::test]
async fn unchanged_statuses_are_not_written_again_even_after_a_restart() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    fixture.order(NODE, "a", 1).await?;
    let store = fixture.store().await?;
    store.report_status("a", status(1, 1500));
    store.publish(with_mtu(1500));
    store.report_status("a", status(1, 9000));
    delivered(&store).await?;
    assert_eq!(fixture.enactment("a").await?.status, status(1, 9000));

    let before = fixture.versions("a").await?;
    store.report_status("a", status(1, 9000));
    store.publish(with_mtu(1500));
    delivered(&store).await?;
    assert_eq!(fixture.versions("a").await?, before);
    drop(store);

    // It can write nothing, so it is done only if there is nothing to write.
    let read_only = fixture.read_only_store().await?;
    read_only.report_status("a", status(1, 9000));
    read_only.publish(with_mtu(1500));
    delivered(&read_only).await?;
    assert_eq!(fixture.versions("a").await?, before);
    read_only.publish(with_mtu(9000));
    ensure!(!read_only.flush(Duration::from_secs(1)).await, "it has written without rights");
    drop(read_only);

    let store = fixture.store().await?;
    store.publish(with_mtu(1500));
    store.report_status("a", status(2, 9000));
    delivered(&store).await?;
    let [_, state] = fixture.versions("a").await?;
    assert_eq!(state, before[1]);
    assert_eq!(
        fixture.enactment("a").await?.status,
        status(2, 9000),
        "the retries of generation 1 are dropped"
    );
    Ok(())
}

#[tokio::test]
async fn a_node_state_is_owned_by_its_node_and_created_again_when_deleted() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    let store = fixture.store().await?;
    store.publish(with_mtu(1500));
    delivered(&store).await?;
    let first = fixture.states.get(NODE).await?;
    let node: Node = Api::all(fixture.api.client()).get(NODE).await?;
    assert_eq!(
        serde_json::to_value(first.owner_references())?,
        json!([{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node.uid()}])
    );
    assert_eq!(first.spec.node_name.as_deref(), Some(NODE));
    assert_eq!(first.labels()[names::relationship::PART_OF], "tests");
    assert_eq!(first.status.current_state, Some(with_mtu(1500).state));
    assert_eq!(first.status.handler_nmstate_version, "2.2.62");
    assert_eq!(first.status.host_network_manager_version, "1.42.4");
    ensure!(first.status.last_successful_update_time.is_some());

    fixture.states.delete(NODE, &DeleteParams::default()).await?;
    let again = wait::until(LIMIT, "the node state to be created again", async || {
        let again = fixture.states.get(NODE).await?;
        ensure!(again.status.current_state.is_some(), "no status yet");
        Ok(again)
    })
    .await?;
    assert_ne!(again.uid(), first.uid());
    assert_eq!(again.status.current_state, first.status.current_state);
    assert_eq!(again.owner_references(), first.owner_references());
    Ok(())
}

#[tokio::test]
async fn a_report_can_be_requested_and_writes_nothing_if_nothing_changed() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    let store = fixture.store().await?;
    store.publish(with_mtu(1500));
    delivered(&store).await?;
    let shown = fixture.states.get(NODE).await?.status;
    for value in ["1", "2"] {
        let label = json!({"metadata": {"labels": {names::FORCE_REFRESH_LABEL: value}}});
        let labelled = fixture.states.patch(NODE, &PatchParams::default(), &Patch::Merge(label)).await?;
        timeout(LIMIT, store.refresh_requested()).await.context("the request was not noticed")?;
        store.publish(with_mtu(1500));
        delivered(&store).await?;
        let after = fixture.states.get(NODE).await?;
        assert_eq!(after.resource_version(), labelled.resource_version());
        assert_eq!(after.status, shown);
    }
    Ok(())
}

#[tokio::test]
async fn the_node_state_of_another_handler_is_taken_over() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    // As kubernetes-nmstate writes it: by updates, with no spec.
    let left: NodeNetworkState = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    let manager = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    let mut left = fixture.states.create(&manager, &left).await?;
    left.status = serde_json::from_value(json!({
        "currentState": {"interfaces": [], "ovn": {}, "dns-resolver": {"config": {"search": ["left.over"]}}},
        "lastSuccessfulUpdateTime": "2001-01-01T00:00:00Z",
        "handlerNetworkManagerVersion": "1.0",
    }))?;
    fixture.states.replace_status(NODE, &manager, &left).await?;

    let store = fixture.store().await?;
    let state = json!({
        "dns-resolver": {"config": {"server": ["192.0.2.1"]}},
        "interfaces": [{"name": "eth1", "mac-address": null}],
        "ovn": null,
    });
    store.publish(network(&state));
    delivered(&store).await?;
    let shown = fixture.states.get(NODE).await?;
    assert_eq!(serde_json::to_value(&shown.status.current_state)?, state);
    assert_eq!(shown.status.handler_network_manager_version, "");
    assert_eq!(shown.spec.node_name.as_deref(), Some(NODE));

    drop(store);
    let read_only = fixture.read_only_store().await?;
    read_only.publish(network(&state));
    delivered(&read_only).await
}

#[tokio::test]
async fn a_status_that_cannot_be_read_is_replaced_and_its_order_carried_out() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    fixture.order(NODE, "a", 1).await?;
    let store = fixture.store().await?;
    store.report_status("a", status(1, 1500));
    store.publish(with_mtu(1500));
    delivered(&store).await?;
    let mut running = Some(store);
    let nested = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let thief = fixture.api.client_with_token(&fixture.token().await?).await?;
    // First a store that has known the objects before, then one that has not.
    for generation in [2, 3] {
        if generation == 3 {
            running = None;
        }
        for (url, name, field) in [
            ("/apis/nmstate.io/v1beta1/nodenetworkconfigurationenactments", "node1.a", "desiredState"),
            ("/apis/nmstate.io/v1beta1/nodenetworkstates", NODE, "currentState"),
        ] {
            let patch = Patch::Merge(json!({"status": {field: nested}}));
            let params = PatchParams::default();
            let request = Request::new(url).patch_subresource("status", name, &params, &patch)?;
            thief.request_text(request).await?;
        }
        fixture.order(NODE, "a", generation).await?;
        let store = match running.take() {
            Some(store) => store,
            None => fixture.store().await?,
        };
        until_ordered(&mut store.orders(), &format!("a@{generation}")).await?;
        let mtu = 1400 + u32::try_from(generation)?;
        store.report_status("a", status(generation, mtu));
        store.publish(with_mtu(mtu));
        wait::until(LIMIT, "both to be replaced", async || {
            let found = fixture.enactment("a").await?.status;
            ensure!(found == status(generation, mtu), "{found:?}");
            let found = fixture.states.get(NODE).await?.status.current_state;
            ensure!(found == Some(with_mtu(mtu).state), "{found:?}");
            Ok(())
        })
        .await?;
        running = Some(store);
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_is_detected_and_gets_the_latest_status_when_it_is_back() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    fixture.order(NODE, "a", 1).await?;
    let store = fixture.store().await?;
    let mut orders = store.orders();
    until_ordered(&mut orders, "a@1").await?;
    store.publish(with_mtu(1500));
    delivered(&store).await?;

    fixture.api.freeze()?;
    for generation in 1..=3 {
        store.report_status("a", status(generation, 1500));
        store.publish(with_mtu(9000 + u32::try_from(generation)?));
        ensure!(!store.flush(Duration::from_secs(7)).await, "a frozen server accepted something");
    }
    wait::until(Duration::from_secs(25), "the freeze to be detected", async || {
        ensure!(store.api_access() == ApiAccess::Unreachable, "still connected");
        Ok(())
    })
    .await?;
    fixture.api.resume()?;

    ensure!(store.flush(Duration::from_secs(45)).await, "not delivered");
    wait::until(LIMIT, "the latest node state to be written", async || {
        assert_eq!(fixture.enactment("a").await?.status, status(3, 1500));
        let state = fixture.states.get(NODE).await?.status.current_state;
        ensure!(state == Some(with_mtu(9003).state), "{state:?}");
        Ok(())
    })
    .await?;
    fixture.order(NODE, "a", 3).await?;
    until_ordered(&mut orders, "a@3").await?;
    ensure!(store.api_access() == ApiAccess::Connected);
    Ok(())
}

#[tokio::test]
async fn a_server_that_was_down_gets_the_latest_status_when_it_is_back() -> Result<()> {
    let mut fixture = StoreFixture::start().await?;
    fixture.order(NODE, "a", 1).await?;
    fixture.order(NODE, "b", 1).await?;
    let store = fixture.store().await?;
    let mut orders = store.orders();
    until_ordered(&mut orders, "a@1 b@1").await?;

    let token = fixture.token().await?;
    fixture.api.crash();
    wait::until(LIMIT, "the crash of the server to be detected", async || {
        ensure!(store.api_access() == ApiAccess::Unreachable, "still connected");
        Ok(())
    })
    .await?;
    // A handler that is started now waits for its orders and keeps its report.
    let late = fixture.store_with(&token).await?;
    late.publish(with_mtu(1500));
    for generation in 1..=3 {
        store.report_status("a", status(generation, 1500));
        store.report_status("b", status(generation, 9000));
        ensure!(!store.flush(Duration::from_secs(1)).await, "a server that is down accepted something");
    }
    ensure!(late.orders().borrow().is_none());
    fixture.api.start_again().await?;

    ensure!(store.flush(Duration::from_secs(45)).await, "not delivered");
    assert_eq!(fixture.enactment("a").await?.status, status(3, 1500));
    assert_eq!(fixture.enactment("b").await?.status, status(3, 9000));
    until_ordered(&mut late.orders(), "a@1 b@1").await?;
    delivered(&late).await?;
    assert_eq!(fixture.states.get(NODE).await?.status.current_state, Some(with_mtu(1500).state));
    Ok(())
}

/// Refuses what a handler reports, as definitions of another version may.
const WITHOUT_FEATURES: &str = r"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: without-features}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [nmstate.io]
      apiVersions: ['*']
      operations: [UPDATE]
      resources: [nodenetworkconfigurationenactments/status]
  validations:
  - expression: '!has(object.status.features)'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: without-features}
spec: {policyName: without-features, validationActions: [Deny]}
";

#[tokio::test]
async fn a_status_that_the_server_refuses_is_written_without_what_can_be_missing() -> Result<()> {
    let fixture = StoreFixture::start().await?;
    for policy in ["a", "b", "large", "other"] {
        fixture.order(NODE, policy, 1).await?;
    }
    let patch = async |status: Value| {
        let params = PatchParams::default();
        fixture
            .enactments
            .patch_status("node1.other", &params, &Patch::Merge(json!({"status": status})))
            .await
    };
    // What is too large is refused for good, in whatever way.
    let large =
        |kibibytes: usize| json!({"desiredState": {"hostname": {"config": "x".repeat(kibibytes * 1024)}}});
    for kibibytes in [1600, 2500, 3500] {
        let error = CallError::from(patch(large(kibibytes)).await.err().context("it was taken")?);
        println!("{kibibytes} KiB: {error}");
        ensure!(error.is_refusal_of_content(), "{error:?}");
    }
    fixture.api.kubectl_with(WITHOUT_FEATURES, ["apply", "-f", "-"]).await?.success()?;
    wait::until(LIMIT, "the rule to hold", async || {
        let error = CallError::from(patch(json!({"features": ["f"]})).await.err().context("it was taken")?);
        ensure!(error.is_refusal_of_content(), "{error:?}");
        Ok(())
    })
    .await?;

    let store = fixture.store().await?;
    let available = json!([{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured"}]);
    let with = |mut rest: Value| -> Result<Status> {
        rest["policyGeneration"] = json!(1);
        rest["conditions"] = available.clone();
        Ok(serde_json::from_value(rest)?)
    };
    store.report_status("a", with(json!({"features": ["f"]}))?);
    store.report_status("b", with(json!({}))?);
    store.report_status("large", with(large(2500))?);
    delivered(&store).await?;
    for (policy, note) in
        [("a", "the API server refuses"), ("large", "too large for the API server: desiredState")]
    {
        let status = fixture.enactment(policy).await?.status;
        ensure!(
            status.conditions.is_true("Available") && status.policy_generation == 1,
            "{policy}: {status:?}"
        );
        ensure!(status.notes.iter().any(|found| found.contains(note)), "{policy}: {:?}", status.notes);
    }
    assert_eq!(fixture.enactment("b").await?.status, with(json!({}))?, "others are written as they are");
    Ok(())
}
