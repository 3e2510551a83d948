//! Rotates the certificates, which only the leader does: one step after the other, as [`next_step`] determines.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{ConfigMap, Secret},
    },
};
use knmstate_api::names::CONTROLLER_FIELD_MANAGER;
use knmstate_client::call::{Backoff, CallError, FailureLog, within_limit};
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
    authority::{CertificateAuthority, WebhookNames},
    bundles::{self, Webhooks},
    certificate::{Certificate, CertificatePair},
    changes,
    intervals::RotationIntervals,
    next_step::{self, CertificateState, RotationStep},
    served::pair_in,
};
use crate::controller_metrics::{CertificateKind, ControllerMetrics};

/// The annotation of kubernetes-nmstate's Secrets.
const ANNOTATION: &str = "kubevirt.io/kube-admission-webhook";
/// The key of the earlier authorities that have not expired.
const PREVIOUS: &str = "previous.crt";
/// A rotation has three steps; more at once mean that another client reverts them.
const MAX_STEPS: usize = 8;
/// The certificates are checked at least this often, because clocks get adjusted and watches can lag.
const MAX_WAIT: Duration = Duration::from_hours(1);
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The objects that a rotation writes, and how.
#[derive(Clone)]
pub struct RotationOptions {
    pub client: Client,
    /// The Service of the webhook. The Secret with its certificate has the same name.
    pub names: WebhookNames,
    /// The Secret of the authority.
    pub authority: String,
    /// The ConfigMap of the CA bundle.
    pub bundle: String,
    /// The name of both webhook configurations.
    pub webhooks: String,
    /// Whether to set the `caBundle` of the webhooks, which otherwise the operator does.
    pub injects: bool,
    /// Labels to set on the Secrets.
    pub labels: BTreeMap<String, String>,
    pub metrics: ControllerMetrics,
    pub now: fn() -> Timestamp,
}

impl std::fmt::Debug for RotationOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "certificates of {:?}", self.names)
    }
}

/// Rotates the certificates until the future is dropped. Only the leader may run it.
pub async fn rotate(options: RotationOptions, mut intervals: watch::Receiver<RotationIntervals>) {
    let changed = Arc::new(Notify::new());
    // The watches end with this task.
    let mut watches = JoinSet::new();
    changes::notify(&options, &changed, &mut watches);
    let mut rotator = Rotator::new(options);
    let mut failures = FailureLog::new("rotate the certificates of the webhook");
    let mut backoff = Backoff::new();
    loop {
        let wanted = *intervals.borrow_and_update();
        let wait = match rotator.round(&wanted).await {
            Ok(wait) => {
                failures.succeeded();
                backoff = Backoff::new();
                wait
            }
            Err(failure) => {
                failure.log(&mut failures);
                backoff.next_delay()
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = changed.notified() => {}
            Ok(()) = intervals.changed() => {}
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("another client also writes the certificates of the webhook")]
    Contested,
}

impl RotationError {
    fn log(&self, failures: &mut FailureLog) {
        match self {
            // Another client was faster. Its write is read next time.
            Self::Call(error) if error.code() == Some(409) => {}
            Self::Call(error) => failures.failed(error),
            other => tracing::warn!("{other}; it will be tried again"),
        }
    }
}

/// The objects as they were read.
struct CurrentObjects {
    authority: Option<Secret>,
    serving: Option<Secret>,
    bundle: Option<ConfigMap>,
    webhooks: Webhooks,
    known: CertificateState,
}

struct Rotator {
    options: RotationOptions,
    secrets: Api<Secret>,
    maps: Api<ConfigMap>,
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    carried_since: Option<Timestamp>,
    /// Whether the log has that the webhooks lack the bundle.
    waits: bool,
}

impl Rotator {
    fn new(options: RotationOptions) -> Self {
        Self {
            secrets: Api::namespaced(options.client.clone(), &options.names.namespace),
            maps: Api::namespaced(options.client.clone(), &options.names.namespace),
            mutating: Api::all(options.client.clone()),
            validating: Api::all(options.client.clone()),
            carried_since: None,
            waits: false,
            options,
        }
    }

    /// Takes steps until none is due, and returns how long to wait for the next one.
    async fn round(&mut self, intervals: &RotationIntervals) -> Result<Duration, RotationError> {
        for _ in 0..MAX_STEPS {
            let seen = self.read().await?;
            let authority = seen.known.authority.as_ref();
            let end = authority.map(|authority| authority.not_after);
            self.options.metrics.set_certificate_expiry(CertificateKind::Authority, end);
            let now = (self.options.now)();
            match next_step::next_step(&seen.known, intervals, now) {
                RotationStep::Wait { until } => {
                    self.log_waiting();
                    let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return Ok(wait.clamp(MIN_WAIT, MAX_WAIT));
                }
                RotationStep::MakeAuthority => self.make_authority(&seen, intervals, now).await?,
                RotationStep::Publish => self.publish(&seen, now).await?,
                RotationStep::Issue => self.issue(&seen, intervals, now).await?,
            }
        }
        Err(RotationError::Contested)
    }

    fn log_waiting(&mut self) {
        let waits = self.carried_since.is_none();
        if waits && !self.waits {
            tracing::info!(
                "the webhook configurations do not have the CA bundle in ConfigMap {} yet; the operator copies it, or, \
                 where no operator runs, the controllers with --inject-ca-bundle",
                self.options.bundle
            );
        }
        self.waits = waits;
    }

    async fn read(&mut self) -> Result<CurrentObjects, RotationError> {
        let name = &self.options.webhooks;
        let webhooks = Webhooks {
            mutating: within_limit(self.mutating.get_opt(name)).await?,
            validating: within_limit(self.validating.get_opt(name)).await?,
        };
        let authority = within_limit(self.secrets.get_opt(&self.options.authority)).await?;
        let serving = within_limit(self.secrets.get_opt(&self.options.names.service)).await?;
        let bundle = within_limit(self.maps.get_opt(&self.options.bundle)).await?;
        let now = (self.options.now)();
        let mut known = CertificateState {
            published: bundle.as_ref().map(bundles::published).unwrap_or_default(),
            bundles: webhooks.bundles().into_iter().map(|bundle| bundle.certificates).collect(),
            injects: self.options.injects,
            ..of_secrets(authority.as_ref(), serving.as_ref(), &self.options.names)
        };
        self.carried_since = next_step::is_carried(&known, now).then(|| self.carried_since.unwrap_or(now));
        known.carried_since = self.carried_since;
        Ok(CurrentObjects { authority, serving, bundle, webhooks, known })
    }

    async fn make_authority(
        &mut self,
        seen: &CurrentObjects,
        intervals: &RotationIntervals,
        now: Timestamp,
    ) -> Result<(), RotationError> {
        let pair = CertificateAuthority::make(now, intervals.authority)?;
        // Also those that are only in the bundles: the served certificate may be signed by one of them.
        let known =
            CertificateState { authority: None, previous: all_authorities(seen), ..seen.known.clone() };
        let previous: String = next_step::trusted(&known, now).iter().map(Certificate::pem).collect();
        tracing::info!("creating a new certificate authority, valid until {}", now + intervals.authority);
        let data = [("ca.crt", pair.certificate), ("ca.key", pair.key), (PREVIOUS, previous.into_bytes())];
        self.carried_since = None;
        self.write(&self.options.authority, seen.authority.as_ref(), "Opaque", data).await
    }

    async fn publish(&self, seen: &CurrentObjects, now: Timestamp) -> Result<(), RotationError> {
        let params = PatchParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let wanted = next_step::trusted(&seen.known, now);
        if wanted != seen.known.published {
            let version = seen.bundle.as_ref().and_then(ConfigMap::resource_version);
            let patch = bundles::publication(&wanted, version.as_deref());
            within_limit(self.maps.patch(&self.options.bundle, &params, &Patch::Merge(patch))).await?;
        }
        if !self.options.injects {
            return Ok(());
        }
        let name = &self.options.webhooks;
        if let Some(patch) = seen.webhooks.mutating_patch(&wanted) {
            within_limit(self.mutating.patch(name, &params, &Patch::Strategic(patch))).await?;
        }
        if let Some(patch) = seen.webhooks.validating_patch(&wanted) {
            within_limit(self.validating.patch(name, &params, &Patch::Strategic(patch))).await?;
        }
        Ok(())
    }

    async fn issue(
        &self,
        seen: &CurrentObjects,
        intervals: &RotationIntervals,
        now: Timestamp,
    ) -> Result<(), RotationError> {
        let authority = seen
            .authority
            .as_ref()
            .and_then(|secret| CertificateAuthority::read(&pair_in(secret, "ca.crt", "ca.key")));
        let Some(authority) = authority else { return Err(RotationError::Contested) };
        let pair = authority.issue(&self.options.names, now, intervals.certificate)?;
        let data = [("tls.crt", pair.certificate), ("tls.key", pair.key)];
        self.write(&self.options.names.service, seen.serving.as_ref(), "kubernetes.io/tls", data).await
    }

    /// Writes a Secret, and fails if it has changed since it was read.
    async fn write<const N: usize>(
        &self,
        name: &str,
        seen: Option<&Secret>,
        type_: &str,
        data: [(&str, Vec<u8>); N],
    ) -> Result<(), RotationError> {
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
                // The type of a Secret is immutable.
                secret.type_ = None;
                secret.metadata.resource_version = seen.resource_version();
                within_limit(self.secrets.patch(name, &params, &Patch::Merge(secret))).await?;
            }
        }
        Ok(())
    }
}

fn of_secrets(
    authority: Option<&Secret>,
    serving: Option<&Secret>,
    names: &WebhookNames,
) -> CertificateState {
    let pair = authority.map(|secret| pair_in(secret, "ca.crt", "ca.key")).unwrap_or_default();
    let serving = serving.map(|secret| pair_in(secret, "tls.crt", "tls.key")).unwrap_or_default();
    CertificateState {
        authority: CertificateAuthority::read(&pair).and_then(|_| first(&pair)),
        previous: authority.map(previous).unwrap_or_default(),
        serving: serving.leaf().filter(|leaf| leaf.has_names(&names.alternatives())),
        ..CertificateState::default()
    }
}

fn first(pair: &CertificatePair) -> Option<Certificate> {
    Certificate::read_all(&pair.certificate).into_iter().next()
}

fn previous(secret: &Secret) -> Vec<Certificate> {
    let data = secret.data.as_ref().and_then(|data| data.get(PREVIOUS));
    data.map(|bytes| Certificate::read_all(&bytes.0)).unwrap_or_default()
}

/// All authorities in the Secret, including those that cannot sign.
fn all_authorities(seen: &CurrentObjects) -> Vec<Certificate> {
    let Some(secret) = &seen.authority else { return Vec::new() };
    let mut all = Certificate::read_all(&pair_in(secret, "ca.crt", "ca.key").certificate);
    all.extend(previous(secret));
    all
}
