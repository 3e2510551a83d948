//! Keeping the certificates: the leader's part. It does what [`plan`] says, one step at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
};
use knmstate_api::names::CONTROLLER_FIELD_MANAGER;
use knmstate_client::call::{CallError, Pauses, Trouble, within_limit};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};

use super::{
    authority::{Authority, Names},
    bundles::{Bundle, Webhooks},
    certificate::{Certificate, Pair},
    intervals::Intervals,
    plan::{self, Known, Step},
    serving::pair_in,
    wake,
};
use crate::measures::{Measures, Which};

/// What kubernetes-nmstate marks its Secrets with.
const ANNOTATION: &str = "kubevirt.io/kube-admission-webhook";
/// The authorities before the present one that have not ended yet.
const PREVIOUS: &str = "previous.crt";
/// A rotation has three steps; more in one go mean that somebody undoes them.
const STEPS: usize = 8;
/// Clocks are set and watches are late: nothing is left alone for longer.
const LONGEST_REST: Duration = Duration::from_hours(1);
const SHORTEST_REST: Duration = Duration::from_millis(100);

/// What is kept, and where.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    /// The Service of the webhook, which is also the name of the Secret that is served.
    pub names: Names,
    /// The Secret of the authority.
    pub authority: String,
    /// The name of both webhook configurations.
    pub webhooks: String,
    /// Labels of the Secrets.
    pub labels: BTreeMap<String, String>,
    pub measures: Measures,
    pub now: fn() -> Timestamp,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "certificates of {:?}", self.names)
    }
}

/// Keeps the certificates for ever. Only the leader may do it.
pub async fn keep(options: Options, mut intervals: watch::Receiver<Intervals>) {
    let changed = Arc::new(Notify::new());
    // The watches end with this task.
    let mut watches = JoinSet::new();
    wake::on_changes(&options, &changed, &mut watches);
    let mut keeper = Keeper::new(options);
    let mut trouble = Trouble::new("keep the certificates of the webhook");
    let mut pauses = Pauses::new();
    loop {
        let wanted = *intervals.borrow_and_update();
        let rest = match keeper.round(&wanted).await {
            Ok(rest) => {
                trouble.over();
                pauses = Pauses::new();
                rest
            }
            Err(failure) => {
                failure.tell(&mut trouble);
                pauses.longer()
            }
        };
        tokio::select! {
            () = sleep(rest) => {}
            () = changed.notified() => {}
            Ok(()) = intervals.changed() => {}
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("somebody else writes the certificates, too")]
    Contested,
}

impl Failure {
    fn tell(&self, trouble: &mut Trouble) {
        match self {
            // Somebody was quicker. What they wrote is read next time.
            Self::Call(error) if error.code() == Some(409) => {}
            Self::Call(error) => trouble.failed(error),
            other => tracing::warn!("{other}; it will be tried again"),
        }
    }
}

/// What was read, and is written back to.
struct Seen {
    authority: Option<Secret>,
    serving: Option<Secret>,
    webhooks: Webhooks,
    known: Known,
}

struct Keeper {
    options: Options,
    secrets: Api<Secret>,
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    published_since: Option<Timestamp>,
}

impl Keeper {
    fn new(options: Options) -> Self {
        Self {
            secrets: Api::namespaced(options.client.clone(), &options.names.namespace),
            mutating: Api::all(options.client.clone()),
            validating: Api::all(options.client.clone()),
            published_since: None,
            options,
        }
    }

    /// Takes steps until there is nothing to do, and says for how long.
    async fn round(&mut self, intervals: &Intervals) -> Result<Duration, Failure> {
        for _ in 0..STEPS {
            let seen = self.look().await?;
            let authority = seen.known.authority.as_ref();
            let end = authority.map(|authority| authority.not_after);
            self.options.measures.certificate_ends(Which::Authority, end);
            let now = (self.options.now)();
            match plan::next(&seen.known, intervals, now) {
                Step::Rest { until } => {
                    let rest = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return Ok(rest.clamp(SHORTEST_REST, LONGEST_REST));
                }
                Step::MakeAuthority => self.make_authority(&seen, intervals, now).await?,
                Step::Publish => self.publish(&seen, now).await?,
                Step::Issue => self.issue(&seen, intervals, now).await?,
            }
        }
        Err(Failure::Contested)
    }

    async fn look(&mut self) -> Result<Seen, Failure> {
        let name = &self.options.webhooks;
        let webhooks = Webhooks {
            mutating: within_limit(self.mutating.get_opt(name)).await?,
            validating: within_limit(self.validating.get_opt(name)).await?,
        };
        let authority = within_limit(self.secrets.get_opt(&self.options.authority)).await?;
        let serving = within_limit(self.secrets.get_opt(&self.options.names.service)).await?;
        let now = (self.options.now)();
        let mut known = known(authority.as_ref(), serving.as_ref(), &webhooks, &self.options.names);
        if plan::is_published(&known, now) {
            self.published_since.get_or_insert(now);
        } else {
            self.published_since = None;
        }
        known.published_since = self.published_since;
        Ok(Seen { authority, serving, webhooks, known })
    }

    async fn make_authority(
        &mut self,
        seen: &Seen,
        intervals: &Intervals,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let pair = Authority::make(now, intervals.authority)?;
        // Also those that only the webhooks know of: what is served may be signed by one of them.
        let known = Known { authority: None, previous: all_authorities(seen), ..Known::default() };
        let bundled: Vec<Certificate> = seen.known.bundles.iter().flatten().cloned().collect();
        let previous: String = plan::trusted(&known, &bundled, now).iter().map(Certificate::pem).collect();
        tracing::info!("a new certificate authority is made; it lives until {}", now + intervals.authority);
        let data = [("ca.crt", pair.certificate), ("ca.key", pair.key), (PREVIOUS, previous.into_bytes())];
        self.published_since = None;
        self.write(&self.options.authority, seen.authority.as_ref(), "Opaque", data).await
    }

    async fn publish(&self, seen: &Seen, now: Timestamp) -> Result<(), Failure> {
        let params = PatchParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let name = &self.options.webhooks;
        let wanted = |bundle: &Bundle| plan::trusted(&seen.known, &bundle.certificates, now);
        if let Some(patch) = seen.webhooks.mutating_patch(wanted) {
            within_limit(self.mutating.patch(name, &params, &Patch::Strategic(patch))).await?;
        }
        if let Some(patch) = seen.webhooks.validating_patch(wanted) {
            within_limit(self.validating.patch(name, &params, &Patch::Strategic(patch))).await?;
        }
        Ok(())
    }

    async fn issue(&self, seen: &Seen, intervals: &Intervals, now: Timestamp) -> Result<(), Failure> {
        let authority =
            seen.authority.as_ref().and_then(|secret| Authority::read(&pair_in(secret, "ca.crt", "ca.key")));
        let Some(authority) = authority else { return Err(Failure::Contested) };
        let pair = authority.issue(&self.options.names, now, intervals.certificate)?;
        let data = [("tls.crt", pair.certificate), ("tls.key", pair.key)];
        self.write(&self.options.names.service, seen.serving.as_ref(), "kubernetes.io/tls", data).await
    }

    /// Writes a Secret only if it is still as it was seen.
    async fn write<const N: usize>(
        &self,
        name: &str,
        seen: Option<&Secret>,
        type_: &str,
        data: [(&str, Vec<u8>); N],
    ) -> Result<(), Failure> {
        let data: BTreeMap<String, ByteString> =
            data.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect();
        let mut secret = Secret { data: Some(data), type_: Some(type_.to_owned()), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.labels = Some(self.options.labels.clone());
        secret.metadata.annotations = Some([(ANNOTATION.to_owned(), String::new())].into());
        let manager = Some(CONTROLLER_FIELD_MANAGER.to_owned());
        match seen {
            None => {
                let params = PostParams { field_manager: manager, ..PostParams::default() };
                within_limit(self.secrets.create(&params, &secret)).await?;
            }
            Some(seen) => {
                let params = PatchParams { field_manager: manager, ..PatchParams::default() };
                // What a Secret is for cannot be changed, and need not be.
                secret.type_ = None;
                secret.metadata.resource_version = seen.resource_version();
                within_limit(self.secrets.patch(name, &params, &Patch::Merge(secret))).await?;
            }
        }
        Ok(())
    }
}

fn known(authority: Option<&Secret>, serving: Option<&Secret>, webhooks: &Webhooks, names: &Names) -> Known {
    let pair = authority.map(|secret| pair_in(secret, "ca.crt", "ca.key")).unwrap_or_default();
    let serving = serving.map(|secret| pair_in(secret, "tls.crt", "tls.key")).unwrap_or_default();
    Known {
        authority: Authority::read(&pair).and_then(|_| first(&pair)),
        previous: authority.map(previous).unwrap_or_default(),
        serving: serving.leaf().filter(|leaf| leaf.has_names(&names.alternatives())),
        bundles: webhooks.bundles().into_iter().map(|bundle| bundle.certificates).collect(),
        published_since: None,
    }
}

fn first(pair: &Pair) -> Option<Certificate> {
    Certificate::read_all(&pair.certificate).into_iter().next()
}

fn previous(secret: &Secret) -> Vec<Certificate> {
    let data = secret.data.as_ref().and_then(|data| data.get(PREVIOUS));
    data.map(|bytes| Certificate::read_all(&bytes.0)).unwrap_or_default()
}

/// The authorities that a Secret holds, whether they can sign or not.
fn all_authorities(seen: &Seen) -> Vec<Certificate> {
    let Some(secret) = &seen.authority else { return Vec::new() };
    let mut all = Certificate::read_all(&pair_in(secret, "ca.crt", "ca.key").certificate);
    all.extend(previous(secret));
    all
}
