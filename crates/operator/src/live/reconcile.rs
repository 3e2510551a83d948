//! One reconciliation: creates, corrects and removes objects until they are what the NMState asks for.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use jiff::Timestamp;
use knmstate_api::{NMState, names::OPERATOR_FIELD_MANAGER};
use knmstate_client::{
    apply::{as_manager, status},
    call::{CallError, within_limit},
    store::Store,
};
use knmstate_core::tls_profile;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PostParams, Preconditions},
};
use serde_json::Value;

use super::{
    addresses::Key,
    exact::{has_additions, must_be_exact},
    finalizer::{add_finalizer, remove_finalizer},
    obsolete::remove_obsolete,
    removal::{RemovalError, remove, remove_operands},
    surroundings::Surroundings,
    view::{ObservedObject, Snapshot},
};
use crate::{
    Config, Object,
    cluster::ClusterInfo,
    kinds::{CONFIG_MAP, DEFINITION, NAMESPACE},
    operands::operands,
    status::DeploymentState,
};

/// The name of an NMState that the operator creates.
const DEFAULT_NAME: &str = "nmstate";

/// Applies objects, and remembers what it has applied so that unchanged objects are not written again.
pub(crate) struct Reconciler {
    client: Client,
    config: Config,
    now: fn() -> Timestamp,
    applied: BTreeMap<Key, Applied>,
    /// Whether all operands have been removed, so that there is nothing to look for.
    all_removed: bool,
    /// Whether obsolete objects of kubernetes-nmstate have been removed.
    obsolete_removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Applied {
    /// Of the object that was applied.
    wanted_hash: u64,
    /// Of the object in the response.
    fingerprint: u64,
}

/// Why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("cannot apply {what}: {error}")]
    Apply { what: String, error: CallError },
    #[error("{doing}: {error}")]
    Call { doing: &'static str, error: CallError },
    #[error("cannot remove the operands: {0}")]
    Removal(#[from] RemovalError),
    #[error(
        "cannot read the NMState {0}, so nothing is applied or removed; correct it, or update knmstate if a newer \
         version has written it"
    )]
    Unreadable(String),
    #[error("cannot use the TLS profile of APIServer/cluster: {0}")]
    Tls(String),
}

impl Reconciler {
    pub(crate) fn new(client: Client, config: Config, now: fn() -> Timestamp) -> Self {
        Self { client, config, now, applied: BTreeMap::new(), all_removed: false, obsolete_removed: false }
    }

    /// Applies the CustomResourceDefinitions, whether or not there is an NMState: users need them to write policies, and
    /// an upgraded operator may bring newer ones.
    pub(crate) async fn define_kinds(&mut self) -> Result<(), ReconcileError> {
        for definition in knmstate_api::crds::all() {
            self.apply(&definition.into(), None).await?;
        }
        Ok(())
    }

    /// Reconciles once, and writes the result to the status of the NMState.
    pub(crate) async fn pass(
        &mut self,
        snapshot: &Snapshot,
        surroundings: &Surroundings,
    ) -> Result<(), ReconcileError> {
        if !snapshot.nmstates.is_listed() {
            return Ok(());
        }
        let nmstates = &snapshot.nmstates;
        let Some(nmstate) = nmstate_to_apply(nmstates)? else {
            return self.without_nmstate(nmstates, surroundings).await;
        };
        self.all_removed = false;
        add_finalizer(&self.client, nmstate).await.map_err(|error| ReconcileError::Call {
            doing: "cannot add the finalizer of the NMState",
            error,
        })?;
        self.remove_younger(nmstates, nmstate).await?;
        let result = self.apply_operands(nmstate, snapshot, surroundings).await;
        let verdict = match &result {
            Ok(verdict) => verdict.clone(),
            Err(failure) => DeploymentState::Failed(failure.to_string()),
        };
        let status_result = self.write_status(nmstate, &verdict).await;
        result.and(status_result)
    }

    /// Without an NMState, apart from those being deleted, which wait for their finalizer.
    async fn without_nmstate(
        &mut self,
        deleted: &BTreeMap<String, NMState>,
        surroundings: &Surroundings,
    ) -> Result<(), ReconcileError> {
        if deleted.is_empty() && self.config.auto_create.applies_to(surroundings.platform.as_deref()) {
            let platform = surroundings.platform.as_deref().unwrap_or("unknown");
            tracing::info!(platform, "creating NMState {DEFAULT_NAME}");
            let nmstates: Api<NMState> = Api::all(self.client.clone());
            let nmstate = NMState::new(DEFAULT_NAME, knmstate_api::NMStateSpec::default());
            return match within_limit(nmstates.create(&PostParams::default(), &nmstate)).await {
                Err(error) if error.code() != Some(409) => {
                    Err(ReconcileError::Call { doing: "cannot create an NMState", error })
                }
                _ => Ok(()),
            };
        }
        if !self.all_removed {
            let removed = remove_operands(&self.client, &self.config).await?;
            if removed > 0 {
                tracing::info!("there is no NMState: removed all operands ({removed} objects)");
            }
            self.applied.retain(|key, _| key.kind == DEFINITION);
            self.all_removed = true;
        }
        for nmstate in deleted.values() {
            let doing = "cannot remove the finalizer of the NMState";
            remove_finalizer(&self.client, nmstate)
                .await
                .map_err(|error| ReconcileError::Call { doing, error })?;
        }
        Ok(())
    }

    async fn remove_younger(
        &self,
        nmstates: &BTreeMap<String, NMState>,
        oldest: &NMState,
    ) -> Result<(), ReconcileError> {
        let api: Api<NMState> = Api::all(self.client.clone());
        for younger in nmstates.values().filter(|one| one.uid() != oldest.uid()) {
            let (name, kept) = (younger.name_any(), oldest.name_any());
            tracing::warn!("removing NMState {name}: there is one per cluster, and {kept} is older");
            let same = Preconditions { uid: younger.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            remove_finalizer(&self.client, younger).await.map_err(|error| ReconcileError::Call {
                doing: "cannot remove the finalizer of a second NMState",
                error,
            })?;
            match within_limit(api.delete(&name, &parameters)).await {
                Err(error) if !matches!(error.code(), Some(404 | 409)) => {
                    return Err(ReconcileError::Call { doing: "cannot remove a second NMState", error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn apply_operands(
        &mut self,
        nmstate: &NMState,
        snapshot: &Snapshot,
        surroundings: &Surroundings,
    ) -> Result<DeploymentState, ReconcileError> {
        let (cluster, tls_remark) = cluster(&self.config, snapshot, surroundings)?;
        let objects: Vec<Object> = operands(&self.config, &nmstate.spec, &cluster)
            .into_iter()
            .flat_map(|group| group.objects)
            .collect();
        let mut wanted = BTreeSet::new();
        for object in &objects {
            let Some(key) = Key::of(object) else { continue };
            let found = snapshot.object(&key);
            self.apply(object, found).await?;
            wanted.insert(key);
        }
        self.remove_others(&wanted, snapshot).await?;
        if !self.obsolete_removed {
            remove_obsolete(&self.client, &self.config).await.map_err(|error| ReconcileError::Call {
                doing: "cannot remove obsolete objects of kubernetes-nmstate",
                error,
            })?;
            self.obsolete_removed = true;
        }
        let lacking = self.lacking(&wanted, snapshot);
        Ok(match (lacking.is_empty(), tls_remark) {
            (false, _) => DeploymentState::Deploying(lacking),
            (true, Some(remark)) => DeploymentState::TlsNotHonored(remark),
            (true, None) => DeploymentState::Deployed,
        })
    }

    /// Applies an object, unless it was applied and has not changed since.
    async fn apply(&mut self, object: &Object, found: Option<&ObservedObject>) -> Result<(), ReconcileError> {
        let Some(key) = Key::of(object) else { return Ok(()) };
        let value = serde_json::to_value(object).unwrap_or(Value::Null);
        let wanted_hash = hash(&value);
        if let (Some(applied), Some(found)) = (self.applied.get(&key), found)
            && *applied == (Applied { wanted_hash, fingerprint: found.fingerprint })
        {
            return Ok(());
        }
        let answer = self
            .write(&key, &value)
            .await
            .map_err(|error| ReconcileError::Apply { what: key.description(), error })?;
        let fingerprint = ObservedObject::new(&key.kind, &answer).fingerprint;
        let applied = Applied { wanted_hash, fingerprint };
        if self.applied.insert(key.clone(), applied) != Some(applied) {
            tracing::debug!("applied {}", key.description());
        }
        Ok(())
    }

    /// Applies one object. Kinds that may not have additions are replaced if another client has added something.
    async fn write(&self, key: &Key, value: &Value) -> Result<DynamicObject, CallError> {
        let api = key.api(&self.client);
        let parameters = as_manager(OPERATOR_FIELD_MANAGER);
        let apply = async || within_limit(api.patch(&key.name, &parameters, &Patch::Apply(value))).await;
        let answer = apply().await;
        let version = match &answer {
            _ if !must_be_exact(&key.kind) => return answer,
            Ok(object) if !has_additions(object.managed_fields(), OPERATOR_FIELD_MANAGER) => return answer,
            Ok(object) => object.resource_version(),
            // Merged with additions of other clients, the object can be invalid.
            Err(error) if error.code() == Some(422) => within_limit(api.get_metadata_opt(&key.name))
                .await?
                .and_then(|there| there.resource_version()),
            Err(_) => return answer,
        };
        let mut whole = value.clone();
        whole["metadata"]["resourceVersion"] = version.into();
        let replacement = serde_json::from_value(whole).map_err(kube::Error::SerdeError)?;
        let manager = Some(OPERATOR_FIELD_MANAGER.to_owned());
        let parameters = PostParams { field_manager: manager, ..PostParams::default() };
        within_limit(api.replace(&key.name, &parameters, &replacement)).await?;
        tracing::warn!("reverted foreign changes to {}", key.description());
        apply().await
    }

    /// Removes objects that an earlier NMState or an earlier version of the operator needed and this one does not.
    async fn remove_others(
        &mut self,
        wanted: &BTreeSet<Key>,
        snapshot: &Snapshot,
    ) -> Result<(), ReconcileError> {
        let found = snapshot.keys().rev();
        // A namespace may have objects of other clients.
        let stays = |key: &Key| key.kind == DEFINITION || key.kind == NAMESPACE || wanted.contains(key);
        for key in found.filter(|key| !stays(key)) {
            let removed = remove(&self.client, &key, None).await.map_err(|error| ReconcileError::Call {
                doing: "cannot remove an object that is no longer needed",
                error,
            })?;
            if removed {
                tracing::info!("removed {}, which is no longer needed", key.description());
            }
            self.applied.remove(&key);
        }
        Ok(())
    }

    /// The workloads that are not ready, as far as the watches have reported.
    fn lacking(&self, wanted: &BTreeSet<Key>, snapshot: &Snapshot) -> Vec<String> {
        let workloads = wanted.iter().filter(|key| key.kind.api_version == "apps/v1");
        workloads
            .filter_map(|key| {
                let found = snapshot.object(key);
                // The watch has not reported the last write yet, so its state is older.
                let current = found
                    .zip(self.applied.get(key))
                    .filter(|(found, applied)| found.fingerprint == applied.fingerprint);
                let workload = current.and_then(|(found, _)| found.workload).unwrap_or_default();
                workload.lacks(key.kind.kind, &key.name)
            })
            .collect()
    }

    async fn write_status(&self, nmstate: &NMState, verdict: &DeploymentState) -> Result<(), ReconcileError> {
        let conditions = verdict.conditions(&nmstate.status.conditions, (self.now)());
        if conditions == nmstate.status.conditions {
            return Ok(());
        }
        match verdict {
            DeploymentState::Deploying(lacking) => tracing::info!("deploying: {}", lacking.join("; ")),
            DeploymentState::Deployed => tracing::info!("everything is deployed and ready"),
            DeploymentState::TlsNotHonored(remark) => tracing::warn!("deployed; {remark}"),
            // Logged by the caller, which tries again.
            DeploymentState::Failed(_) => {}
        }
        let mut object = NMState::new(&nmstate.name_any(), knmstate_api::NMStateSpec::default());
        object.status.conditions = conditions;
        let api: Api<NMState> = Api::all(self.client.clone());
        match status(&api, &object, |nmstate| &nmstate.status, OPERATOR_FIELD_MANAGER).await {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::Call { doing: "cannot write the status of the NMState", error })
            }
            _ => Ok(()),
        }
    }
}

/// The properties of the cluster, and which parts of its TLS profile cannot be honored.
fn cluster(
    config: &Config,
    snapshot: &Snapshot,
    surroundings: &Surroundings,
) -> Result<(ClusterInfo, Option<String>), ReconcileError> {
    let api_server = surroundings.api_server.as_ref();
    let tls = api_server
        .map(|object| tls_profile::of_cluster(Some(object)))
        .transpose()
        .map_err(ReconcileError::Tls)?;
    let ignored = tls.as_ref().map(|tls| tls.ignored.join("; ")).filter(|ignored| !ignored.is_empty());
    let bundle = Key {
        kind: CONFIG_MAP,
        namespace: Some(config.namespace.clone()),
        name: config.settings(false).ca_bundle_config_map(),
    };
    let cluster = ClusterInfo {
        openshift: surroundings.openshift,
        kinds: surroundings.kinds.clone(),
        api_ports: snapshot.api_ports.values().flatten().copied().collect(),
        nodes: (*snapshot.nodes).clone(),
        cluster_reader: surroundings.cluster_reader,
        own_namespace: surroundings.own_namespace,
        tls_profile: tls.and_then(|tls| serde_json::to_string(&tls.profile).ok()),
        ca_bundle: snapshot.object(&bundle).and_then(|found| found.ca_bundle.clone()),
    };
    Ok((cluster, ignored))
}

/// The NMState that counts; `None` if there is none. Fails if there is only one that cannot be read: to take it for
/// deleted would remove all operands from the cluster.
fn nmstate_to_apply(nmstates: &Store<NMState>) -> Result<Option<&NMState>, ReconcileError> {
    let found = oldest(nmstates.values());
    match nmstates.unreadable().next() {
        Some(name) if found.is_none() => Err(ReconcileError::Unreadable(name.clone())),
        _ => Ok(found),
    }
}

/// The NMState that counts: the oldest, and of two created in the same second the first by name.
fn oldest<'a>(nmstates: impl Iterator<Item = &'a NMState>) -> Option<&'a NMState> {
    nmstates
        .filter(|nmstate| nmstate.metadata.deletion_timestamp.is_none())
        .min_by_key(|nmstate| (nmstate.creation_timestamp().map(|time| time.0), nmstate.name_any()))
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use knmstate_client::watch::ObjectEvent;
    use kube::core::{DeserializeGuard, error_boundary::InvalidObject};

    use super::*;

    #[test]
    fn the_oldest_counts() {
        let made = |name: &str, second| {
            let mut nmstate = NMState::new(name, knmstate_api::NMStateSpec::default());
            nmstate.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
            nmstate
        };
        let mut all = [made("c", 5), made("b", 3), made("a", 3), made("d", 9)];
        assert_eq!(oldest(all.iter()).unwrap().name_any(), "a");
        // An NMState that is being deleted does not count.
        all[2].metadata.deletion_timestamp = all[2].metadata.creation_timestamp.clone();
        assert_eq!(oldest(all.iter()).unwrap().name_any(), "b");
        assert!(oldest([].iter()).is_none());
    }

    #[test]
    fn an_nmstate_that_cannot_be_read_is_not_taken_for_a_deleted_one() {
        let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let unreadable = || {
            DeserializeGuard(Err(InvalidObject { error: "invalid type".to_owned(), metadata: metadata("b") }))
        };
        let readable = DeserializeGuard(Ok(NMState {
            metadata: metadata("a"),
            ..NMState::new("a", knmstate_api::NMStateSpec::default())
        }));
        let store = |all| {
            let mut store: Store<NMState> = Store::default();
            store.apply(ObjectEvent::All(all), |nmstate, _| Some(nmstate));
            store
        };
        assert!(nmstate_to_apply(&store(Vec::new())).unwrap().is_none());
        let error = nmstate_to_apply(&store(vec![unreadable()])).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the NMState b, so nothing is applied or removed"), "{error}");
        let both = store(vec![unreadable(), readable]);
        assert_eq!(nmstate_to_apply(&both).unwrap().unwrap().name_any(), "a");
    }
}
