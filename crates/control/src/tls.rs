//! The TLS configuration: certificate and profile. Both can change while connections are open.

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

use crate::certificates::ServedCertificate;

/// How often the file is read. The kubelet takes up to a minute to update a mounted ConfigMap anyway.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Larger files are refused.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("cannot read the TLS profile in {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the TLS profile in {} cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
}

/// The TLS configuration of this replica. Clones share it.
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
    /// With the defaults of rustls until a profile is loaded.
    pub fn new(certificates: &ServedCertificate) -> Result<Self, rustls::Error> {
        let certificates = certificates.resolver();
        let configuration = Arc::new(configuration(None, certificates.clone())?);
        let current = Current { profile: None, configuration };
        Ok(Self { certificates, current: Arc::new(RwLock::new(current)) })
    }

    /// The configuration for the next handshake.
    pub fn configuration(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).configuration.clone()
    }

    /// Uses the profile in this file for new connections, or none if there is no such file. Fails if the file cannot be
    /// read or its profile cannot be used; the previous profile stays in use then.
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
                "using the TLS profile in {}",
                path.display()
            );
        } else {
            tracing::info!("there is no {} any more; using the default TLS profile", path.display());
        }
        for remark in ignored {
            tracing::warn!("the TLS profile is not honored in full: {remark}");
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Current { profile, configuration: Arc::new(configuration) };
        Ok(())
    }

    /// Loads the file again when it changes, until the future is dropped.
    pub async fn follow(self, path: PathBuf) {
        let mut logged = None;
        loop {
            let failure = self.load(&path).await.err().map(|error| error.to_string());
            if let Some(failure) = failure.as_ref().filter(|failure| logged.as_ref() != Some(*failure)) {
                tracing::warn!("{failure}; keeping the previous one");
            }
            logged = failure;
            sleep(POLL_INTERVAL).await;
        }
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    if tokio::fs::metadata(path).await?.len() > MAX_FILE_SIZE {
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

/// The ciphers and curves that a profile allows, in its order.
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

/// rustls has the prefix TLS13 where IANA has TLS.
fn iana_name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

#[cfg(test)]
mod tests;
