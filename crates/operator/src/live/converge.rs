//! One pass: from what is there to what the NMState asks for.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use jiff::Timestamp;
use knmstate_api::{NMState, names::OPERATOR_FIELD_MANAGER};
use knmstate_client::{
    apply::{as_manager, status},
    call::{CallError, within_limit},
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
    finalizer::{hold_back, let_go},
    obsolete::remove_obsolete,
    removal::{RemovalError, remove, remove_operands},
    surroundings::Surroundings,
    view::{Found, Seen},
};
use crate::{
    Config, Object,
    catalogue::{DEFINITION, NAMESPACE},
    facts::Facts,
    operands::operands,
    status::Verdict,
};

/// The name of an NMState that nobody has asked for by name.
const USUAL_NAME: &str = "nmstate";

/// Makes and remembers, so that what has not changed is not written again.
pub struct Converger {
    client: Client,
    config: Config,
    now: fn() -> Timestamp,
    applied: BTreeMap<Key, Applied>,
    /// Whether nothing of ours is there, so that there is nothing to look for.
    clean: bool,
    /// Whether what kubernetes-nmstate has left was looked for.
    swept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Applied {
    /// Of what was asked for.
    wish: u64,
    /// Of what the server has made of it.
    fingerprint: u64,
}

/// Why a pass could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot apply {what}: {error}")]
    Apply { what: String, error: CallError },
    #[error("{doing}: {error}")]
    Call { doing: &'static str, error: CallError },
    #[error("cannot remove what was made: {0}")]
    Removal(#[from] RemovalError),
    #[error("TLS cannot be spoken as APIServer/cluster asks for: {0}")]
    Tls(String),
}

impl Converger {
    pub fn new(client: Client, config: Config, now: fn() -> Timestamp) -> Self {
        Self { client, config, now, applied: BTreeMap::new(), clean: false, swept: false }
    }

    /// The definitions of our kinds are there before anything else, and whether or not there is an NMState: they are
    /// what users write policies by, and an operator may be newer than they are.
    pub async fn define_kinds(&mut self) -> Result<(), Failure> {
        for definition in knmstate_api::crds::all() {
            self.apply(&definition.into(), None).await?;
        }
        Ok(())
    }

    /// Does what is to be done, and says it in the status of the NMState.
    pub async fn pass(&mut self, seen: &Seen, surroundings: &Surroundings) -> Result<(), Failure> {
        let Some(nmstates) = &seen.nmstates else { return Ok(()) };
        let Some(nmstate) = oldest(nmstates.values()) else {
            return self.without_nmstate(nmstates, surroundings).await;
        };
        self.clean = false;
        hold_back(&self.client, nmstate)
            .await
            .map_err(|error| Failure::Call { doing: "cannot hold the NMState back", error })?;
        self.remove_younger(nmstates, nmstate).await?;
        let made = self.make(nmstate, seen, surroundings).await;
        let verdict = match &made {
            Ok(verdict) => verdict.clone(),
            Err(failure) => Verdict::Failed(failure.to_string()),
        };
        let said = self.say(nmstate, &verdict).await;
        made.and(said)
    }

    /// With none, or none but those that are to go and wait for us.
    async fn without_nmstate(
        &mut self,
        going: &BTreeMap<String, NMState>,
        surroundings: &Surroundings,
    ) -> Result<(), Failure> {
        if going.is_empty() && self.config.gate.opens(surroundings.platform.as_deref()) {
            let platform = surroundings.platform.as_deref().unwrap_or("unknown");
            tracing::info!(platform, "making NMState {USUAL_NAME}");
            let nmstates: Api<NMState> = Api::all(self.client.clone());
            let nmstate = NMState::new(USUAL_NAME, knmstate_api::NMStateSpec::default());
            return match within_limit(nmstates.create(&PostParams::default(), &nmstate)).await {
                Err(error) if error.code() != Some(409) => {
                    Err(Failure::Call { doing: "cannot make an NMState", error })
                }
                _ => Ok(()),
            };
        }
        if !self.clean {
            let removed = remove_operands(&self.client, &self.config).await?;
            if removed > 0 {
                tracing::info!("there is no NMState: everything that was made is gone ({removed} objects)");
            }
            self.applied.retain(|key, _| key.kind == DEFINITION);
            self.clean = true;
        }
        for nmstate in going.values() {
            let doing = "cannot let the NMState go";
            let_go(&self.client, nmstate).await.map_err(|error| Failure::Call { doing, error })?;
        }
        Ok(())
    }

    async fn remove_younger(
        &self,
        nmstates: &BTreeMap<String, NMState>,
        oldest: &NMState,
    ) -> Result<(), Failure> {
        let api: Api<NMState> = Api::all(self.client.clone());
        for younger in nmstates.values().filter(|one| one.uid() != oldest.uid()) {
            let (name, kept) = (younger.name_any(), oldest.name_any());
            tracing::warn!("removing NMState {name}: there is one per cluster, and {kept} is older");
            let same = Preconditions { uid: younger.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            let_go(&self.client, younger)
                .await
                .map_err(|error| Failure::Call { doing: "cannot let a second NMState go", error })?;
            match within_limit(api.delete(&name, &parameters)).await {
                Err(error) if !matches!(error.code(), Some(404 | 409)) => {
                    return Err(Failure::Call { doing: "cannot remove a second NMState", error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn make(
        &mut self,
        nmstate: &NMState,
        seen: &Seen,
        surroundings: &Surroundings,
    ) -> Result<Verdict, Failure> {
        let (facts, tls_trouble) = facts(seen, surroundings)?;
        let objects: Vec<Object> = operands(&self.config, &nmstate.spec, &facts)
            .into_iter()
            .flat_map(|group| group.objects)
            .collect();
        let mut wanted = BTreeSet::new();
        for object in &objects {
            let Some(key) = Key::of(object) else { continue };
            let found = seen.objects.get(&key.kind).and_then(|known| known.get(&key));
            self.apply(object, found).await?;
            wanted.insert(key);
        }
        self.remove_others(&wanted, seen).await?;
        if !self.swept {
            remove_obsolete(&self.client, &self.config).await.map_err(|error| Failure::Call {
                doing: "cannot remove what kubernetes-nmstate has left",
                error,
            })?;
            self.swept = true;
        }
        let lacking = self.lacking(&wanted, seen);
        Ok(match (lacking.is_empty(), tls_trouble) {
            (false, _) => Verdict::Deploying(lacking),
            (true, Some(trouble)) => Verdict::TlsNotHonored(trouble),
            (true, None) => Verdict::Deployed,
        })
    }

    /// Applies what is not there as it should be.
    async fn apply(&mut self, object: &Object, found: Option<&Found>) -> Result<(), Failure> {
        let Some(key) = Key::of(object) else { return Ok(()) };
        let value = serde_json::to_value(object).unwrap_or(Value::Null);
        let wish = hash(&value);
        if let (Some(applied), Some(found)) = (self.applied.get(&key), found)
            && *applied == (Applied { wish, fingerprint: found.fingerprint })
        {
            return Ok(());
        }
        let answer =
            self.write(&key, &value).await.map_err(|error| Failure::Apply { what: key.words(), error })?;
        let fingerprint = Found::new(&key.kind, &answer).fingerprint;
        let applied = Applied { wish, fingerprint };
        if self.applied.insert(key.clone(), applied) != Some(applied) {
            tracing::debug!("applied {}", key.words());
        }
        Ok(())
    }

    /// Applies one object; where it must be exactly so, also against what others have added to it.
    async fn write(&self, key: &Key, value: &Value) -> Result<DynamicObject, CallError> {
        let api = key.api(&self.client);
        let parameters = as_manager(OPERATOR_FIELD_MANAGER);
        let apply = async || within_limit(api.patch(&key.name, &parameters, &Patch::Apply(value))).await;
        let answer = apply().await;
        let version = match &answer {
            _ if !must_be_exact(&key.kind) => return answer,
            Ok(object) if !has_additions(object.managed_fields(), OPERATOR_FIELD_MANAGER) => return answer,
            Ok(object) => object.resource_version(),
            // Joined with what others have added, what we say can be nonsense.
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
        tracing::warn!("somebody has added to {}: it is as it should be again", key.words());
        apply().await
    }

    /// Removes what an earlier NMState, or an earlier version of this program, asked for and this one does not.
    async fn remove_others(&mut self, wanted: &BTreeSet<Key>, seen: &Seen) -> Result<(), Failure> {
        let found = seen.objects.values().rev().flat_map(BTreeMap::keys);
        // A namespace may hold what others have put there.
        let stays = |key: &Key| key.kind == DEFINITION || key.kind == NAMESPACE || wanted.contains(key);
        for key in found.filter(|key| !stays(key)) {
            let removed = remove(&self.client, key, None).await.map_err(|error| Failure::Call {
                doing: "cannot remove what is no longer asked for",
                error,
            })?;
            if removed {
                tracing::info!("removed {}, which nothing asks for any more", key.words());
            }
            self.applied.remove(key);
        }
        Ok(())
    }

    /// What does not run yet, as far as the watches have seen.
    fn lacking(&self, wanted: &BTreeSet<Key>, seen: &Seen) -> Vec<String> {
        let workloads = wanted.iter().filter(|key| key.kind.api_version == "apps/v1");
        workloads
            .filter_map(|key| {
                let found = seen.objects.get(&key.kind).and_then(|known| known.get(key));
                // What was just written is not seen yet, and what is seen is older.
                let current = found
                    .zip(self.applied.get(key))
                    .filter(|(found, applied)| found.fingerprint == applied.fingerprint);
                let workload = current.and_then(|(found, _)| found.workload).unwrap_or_default();
                workload.lacks(key.kind.kind, &key.name)
            })
            .collect()
    }

    async fn say(&self, nmstate: &NMState, verdict: &Verdict) -> Result<(), Failure> {
        let conditions = verdict.conditions(&nmstate.status.conditions, (self.now)());
        if conditions == nmstate.status.conditions {
            return Ok(());
        }
        match verdict {
            Verdict::Deploying(lacking) => tracing::info!("deploying: {}", lacking.join("; ")),
            Verdict::Deployed => tracing::info!("everything is deployed and ready"),
            Verdict::TlsNotHonored(trouble) => tracing::warn!("deployed; {trouble}"),
            // It is logged by who tries again.
            Verdict::Failed(_) => {}
        }
        let mut said = NMState::new(&nmstate.name_any(), knmstate_api::NMStateSpec::default());
        said.status.conditions = conditions;
        let api: Api<NMState> = Api::all(self.client.clone());
        match status(&api, &said, |nmstate| &nmstate.status, OPERATOR_FIELD_MANAGER).await {
            Err(error) if !error.is_not_found() => {
                Err(Failure::Call { doing: "cannot write the status of the NMState", error })
            }
            _ => Ok(()),
        }
    }
}

/// What operands depend on, and what of the TLS profile cannot be followed.
fn facts(seen: &Seen, surroundings: &Surroundings) -> Result<(Facts, Option<String>), Failure> {
    let api_server = surroundings.api_server.as_ref();
    let tls =
        api_server.map(|object| tls_profile::of_cluster(Some(object))).transpose().map_err(Failure::Tls)?;
    let ignored = tls.as_ref().map(|tls| tls.ignored.join("; ")).filter(|ignored| !ignored.is_empty());
    let facts = Facts {
        openshift: surroundings.openshift,
        kinds: surroundings.kinds.clone(),
        api_ports: seen.api_ports.iter().flat_map(BTreeMap::values).flatten().copied().collect(),
        nodes: seen.nodes.clone().unwrap_or_default(),
        cluster_reader: surroundings.cluster_reader,
        own_namespace: surroundings.own_namespace,
        tls_profile: tls.and_then(|tls| serde_json::to_string(&tls.profile).ok()),
    };
    Ok((facts, ignored))
}

/// The one that counts: who was first, and of two made at once the first by name.
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
        // One that is going away counts no more.
        all[2].metadata.deletion_timestamp = all[2].metadata.creation_timestamp.clone();
        assert_eq!(oldest(all.iter()).unwrap().name_any(), "b");
        assert!(oldest([].iter()).is_none());
    }
}
