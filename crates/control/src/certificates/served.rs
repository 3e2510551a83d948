//! The certificate that this replica serves, which can be replaced while connections are open.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knmstate_client::watch::{ObjectEvent, Selection, follow};
use kube::{Api, Client, core::DeserializeGuard};
use tokio::time::sleep;
use tokio_rustls::rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::certificate::{Certificate, CertificatePair};

/// How often a directory is read. The kubelet takes up to a minute to update a mounted Secret anyway.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Larger files are refused.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// The Secret of this name, which the leading controller writes with an authority of its own.
    OwnAuthority(String),
    /// The Secret of this name, which another component writes, such as cert-manager.
    Secret(String),
    /// The files `tls.crt` and `tls.key` in this directory, which another component writes.
    Directory(PathBuf),
}

/// The certificate that this replica serves. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServedCertificate(Arc<Current>);

#[derive(Debug, Default)]
struct Current {
    served: RwLock<Option<(CertificatePair, Arc<CertifiedKey>)>>,
    end: RwLock<Option<Timestamp>>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.as_ref().map(|(_, key)| key.clone())
    }
}

impl ServedCertificate {
    /// Without a certificate. Handshakes fail until there is one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is a certificate.
    pub fn is_ready(&self) -> bool {
        self.0.served.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// When the certificate expires.
    pub fn end(&self) -> Option<Timestamp> {
        *self.0.end.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        self.0.clone()
    }

    /// Serves this pair from now on; connections that are open stay as they are. A pair that cannot be served is
    /// refused, and the one before stays.
    pub fn replace(&self, pair: &CertificatePair) {
        let mut served = self.0.served.write().unwrap_or_else(PoisonError::into_inner);
        if served.as_ref().is_some_and(|(known, _)| known == pair) {
            return;
        }
        match pair.certified() {
            Ok(key) => {
                let leaf = Certificate::read_all(&pair.certificate).into_iter().next();
                let end = leaf.map(|leaf| leaf.not_after);
                let until = end.map_or_else(|| "an unknown time".to_owned(), |end| end.to_string());
                tracing::info!("serving a certificate that is valid until {until}");
                *self.0.end.write().unwrap_or_else(PoisonError::into_inner) = end;
                *served = Some((pair.clone(), Arc::new(key)));
            }
            Err(error) => {
                let kept =
                    if served.is_some() { "keeping the previous one" } else { "there is no previous one" };
                tracing::warn!("the new certificate of the webhook cannot be used: {error}; {kept}");
            }
        }
    }

    /// Serves what the source has, until the future is dropped.
    pub async fn follow(self, source: CertificateSource, client: Client, namespace: &str) {
        match source {
            CertificateSource::OwnAuthority(name) | CertificateSource::Secret(name) => {
                self.follow_secret(client, namespace, name).await;
            }
            CertificateSource::Directory(directory) => self.follow_directory(&directory).await,
        }
    }

    async fn follow_secret(self, client: Client, namespace: &str, name: String) {
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(client, namespace);
        let see = |seen: ObjectEvent<Secret>| {
            let secrets = match seen {
                ObjectEvent::All(secrets) => secrets,
                ObjectEvent::Changed(secret) => vec![secret],
                // The certificate stays in use until there is another one.
                ObjectEvent::Gone(_) => Vec::new(),
            };
            for secret in secrets.into_iter().filter_map(|secret| secret.0.ok()) {
                self.replace(&pair_in(&secret, "tls.crt", "tls.key"));
            }
        };
        follow(api, Selection::Name(name), "watch the certificate of the webhook", |_| (), see).await;
    }

    async fn follow_directory(self, directory: &Path) {
        let mut logged = None;
        loop {
            match read_directory(directory).await {
                Ok(pair) => {
                    logged = None;
                    self.replace(&pair);
                }
                Err(error) => {
                    if logged != Some(error.kind()) {
                        tracing::warn!(
                            "cannot read the certificate in {}: {error}; trying again",
                            directory.display()
                        );
                        logged = Some(error.kind());
                    }
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// The pair under these keys of a Secret; empty where the Secret lacks them.
pub(super) fn pair_in(secret: &Secret, certificate: &str, key: &str) -> CertificatePair {
    let bytes = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.clone()).unwrap_or_default()
    };
    CertificatePair { certificate: bytes(certificate), key: bytes(key) }
}

/// The kubelet swaps both files at once. Read between two swaps they do not match, are refused, and read again.
async fn read_directory(directory: &Path) -> std::io::Result<CertificatePair> {
    let read = async |name: &str| {
        let path = directory.join(name);
        if tokio::fs::metadata(&path).await?.len() > MAX_FILE_SIZE {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        tokio::fs::read(path).await
    };
    Ok(CertificatePair { certificate: read("tls.crt").await?, key: read("tls.key").await? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::authority::CertificateAuthority;

    fn pair() -> CertificatePair {
        CertificateAuthority::make(Timestamp::UNIX_EPOCH, POLL_INTERVAL).expect("a pair")
    }

    fn served(serving: &ServedCertificate) -> Option<CertificatePair> {
        serving.0.served.read().expect("no panic").as_ref().map(|(pair, _)| pair.clone())
    }

    #[test]
    fn a_broken_pair_is_refused_and_the_old_one_stays() {
        let serving = ServedCertificate::new();
        let (one, other) = (pair(), pair());
        serving.replace(&CertificatePair::default());
        assert!(!serving.is_ready());
        serving.replace(&one);
        assert_eq!(served(&serving), Some(one.clone()));
        serving.replace(&CertificatePair { certificate: one.certificate.clone(), key: other.key.clone() });
        assert_eq!(served(&serving), Some(one));
        serving.replace(&other);
        assert_eq!(served(&serving), Some(other));
        assert!(serving.end().is_some_and(|end| end > Timestamp::UNIX_EPOCH));
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |pair: &CertificatePair| {
            std::fs::write(directory.path().join("tls.crt"), &pair.certificate).expect("written");
            std::fs::write(directory.path().join("tls.key"), &pair.key).expect("written");
        };
        let serving = ServedCertificate::new();
        let following = tokio::spawn({
            let (serving, directory) = (serving.clone(), directory.path().to_owned());
            async move { serving.follow_directory(&directory).await }
        });
        let (one, other) = (pair(), pair());
        for expected in [one, other] {
            write(&expected);
            let arrives = async {
                while served(&serving).as_ref() != Some(&expected) {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::time::timeout(3 * POLL_INTERVAL, arrives).await.expect("it is served within two polls");
        }
        following.abort();
    }
}
