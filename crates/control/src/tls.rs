//! How TLS is spoken: by which certificate, and within which profile. Both change without anybody noticing.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use knmstate_core::tls_profile::{TLS_1_2, TlsProfile, honor};
use tokio::time::sleep;
use tokio_rustls::rustls::{
    self, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, SupportedKxGroup, ring},
    server::ResolvesServerCert,
    version::{TLS12, TLS13},
};

use crate::certificates::Serving;

/// How often the file is looked at. The kubelet takes a minute to bring a new ConfigMap there anyway.
const LOOK: Duration = Duration::from_secs(10);
/// No profile is longer.
const LARGEST_FILE: u64 = 64 * 1024;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("cannot read the TLS profile in {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the TLS profile in {} cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
}

/// How this replica speaks TLS. Clones share it.
#[derive(Clone, Debug)]
pub struct Tls {
    certificates: Arc<dyn ResolvesServerCert>,
    current: Arc<RwLock<Current>>,
}

#[derive(Debug)]
struct Current {
    profile: Option<TlsProfile>,
    configuration: Arc<ServerConfig>,
}

impl Tls {
    /// With what rustls takes for good, until there is a profile.
    pub fn new(certificates: &Serving) -> Result<Self, rustls::Error> {
        let certificates = certificates.resolver();
        let configuration = Arc::new(configuration(None, certificates.clone())?);
        let current = Current { profile: None, configuration };
        Ok(Self { certificates, current: Arc::new(RwLock::new(current)) })
    }

    /// What the next handshake goes by.
    pub fn configuration(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).configuration.clone()
    }

    /// Goes by the profile in this file from now on, or by none if there is no file. Connections that are open stay as
    /// they are. After an error, what held before still holds.
    pub async fn load(&self, path: &Path) -> Result<(), ProfileError> {
        let unusable = |why: String| ProfileError::Unusable { path: path.to_owned(), why };
        let profile = match read(path).await {
            Ok(text) => {
                let wanted = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
                let honored = honor(&wanted).map_err(unusable)?;
                Some(honored)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(ProfileError::Unreadable { path: path.to_owned(), error }),
        };
        let (profile, ignored) =
            profile.map_or((None, Vec::new()), |honored| (Some(honored.profile), honored.ignored));
        if self.current.read().unwrap_or_else(PoisonError::into_inner).profile == profile {
            return Ok(());
        }
        let configuration = configuration(profile.as_ref(), self.certificates.clone())
            .map_err(|error| unusable(error.to_string()))?;
        if let Some(profile) = &profile {
            tracing::info!(
                min = profile.min_tls_version,
                ciphers = profile.ciphers.join(","),
                curves = profile.curves.join(","),
                "TLS is spoken by the profile in {}",
                path.display()
            );
        } else {
            tracing::info!("{} is gone; TLS is spoken as usual", path.display());
        }
        for remark in ignored {
            tracing::warn!("the TLS profile is not kept in full: {remark}");
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Current { profile, configuration: Arc::new(configuration) };
        Ok(())
    }

    /// Keeps up with the file, for ever.
    pub async fn follow(self, path: PathBuf) {
        let mut told = None;
        loop {
            let trouble = self.load(&path).await.err().map(|error| error.to_string());
            if let Some(trouble) = trouble.as_ref().filter(|trouble| told.as_ref() != Some(*trouble)) {
                tracing::warn!("{trouble}; the one before is kept");
            }
            told = trouble;
            sleep(LOOK).await;
        }
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    if tokio::fs::metadata(path).await?.len() > LARGEST_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    tokio::fs::read(path).await
}

/// HTTP/1.1 alone: with HTTP/2 one client could open any number of requests on one connection.
fn configuration(
    profile: Option<&TlsProfile>,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let (provider, versions): (_, &[&SupportedProtocolVersion]) = match profile {
        Some(profile) if profile.min_tls_version != TLS_1_2 => (provider(profile), &[&TLS13]),
        Some(profile) => (provider(profile), &[&TLS12, &TLS13]),
        None => (ring::default_provider(), &[&TLS12, &TLS13]),
    };
    let mut configuration = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(configuration)
}

/// What a profile leaves of the ciphers and curves, in its order.
fn provider(profile: &TlsProfile) -> CryptoProvider {
    let all = ring::default_provider();
    CryptoProvider {
        cipher_suites: chosen(&profile.ciphers, &all.cipher_suites, iana_name),
        kx_groups: chosen(&profile.curves, &all.kx_groups, |group: &&dyn SupportedKxGroup| {
            group.name().as_str().unwrap_or_default().to_owned()
        }),
        ..all
    }
}

fn chosen<T: Copy>(names: &[String], all: &[T], name_of: impl Fn(&T) -> String) -> Vec<T> {
    if names.is_empty() {
        return all.to_vec();
    }
    names.iter().filter_map(|name| all.iter().find(|one| name_of(one) == *name).copied()).collect()
}

/// rustls says TLS13 where IANA says TLS.
fn iana_name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

#[cfg(test)]
mod tests;
