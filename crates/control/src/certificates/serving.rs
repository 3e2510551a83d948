//! What is served: a certificate that is exchanged without anybody noticing.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knmstate_client::watch::{Seen, Selection, follow};
use kube::{Api, Client, core::DeserializeGuard};
use tokio::time::sleep;
use tokio_rustls::rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::certificate::{Certificate, Pair};

/// How often a folder is looked at. The kubelet takes a minute to bring a new Secret there anyway.
const LOOK: Duration = Duration::from_secs(30);
/// No certificate is longer.
const LARGEST_FILE: u64 = 1024 * 1024;

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From our own authority, by the Secret with this name; the leader has to keep it.
    OwnAuthority(String),
    /// From a Secret that somebody else keeps.
    Secret(String),
    /// From the files `tls.crt` and `tls.key` in a folder that somebody else keeps.
    Folder(PathBuf),
}

/// The certificate of this replica. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Serving(Arc<Current>);

#[derive(Debug, Default)]
struct Current {
    served: RwLock<Option<(Pair, Arc<CertifiedKey>)>>,
    end: RwLock<Option<Timestamp>>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.as_ref().map(|(_, key)| key.clone())
    }
}

impl Serving {
    /// Before there is a certificate, handshakes fail.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is a certificate.
    pub fn is_ready(&self) -> bool {
        self.0.served.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Until when the certificate is valid.
    pub fn end(&self) -> Option<Timestamp> {
        *self.0.end.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        self.0.clone()
    }

    /// Serves this pair from now on; connections that are open stay as they are. A pair that cannot be served is
    /// refused, and the one before stays.
    pub fn replace(&self, pair: &Pair) {
        let mut served = self.0.served.write().unwrap_or_else(PoisonError::into_inner);
        if served.as_ref().is_some_and(|(known, _)| known == pair) {
            return;
        }
        match pair.certified() {
            Ok(key) => {
                let leaf = Certificate::read_all(&pair.certificate).into_iter().next();
                let end = leaf.map(|leaf| leaf.not_after);
                let told = end.map_or_else(|| "an unknown time".to_owned(), |end| end.to_string());
                tracing::info!("serving a certificate that is valid until {told}");
                *self.0.end.write().unwrap_or_else(PoisonError::into_inner) = end;
                *served = Some((pair.clone(), Arc::new(key)));
            }
            Err(unfit) => {
                let kept =
                    if served.is_some() { "the one before is kept" } else { "there is none before it" };
                tracing::warn!("the new certificate of the webhook cannot be used: {unfit}; {kept}");
            }
        }
    }

    /// Keeps up with the source, for ever.
    pub async fn follow(self, source: Source, client: Client, namespace: &str) {
        match source {
            Source::OwnAuthority(name) | Source::Secret(name) => {
                self.follow_secret(client, namespace, name).await;
            }
            Source::Folder(folder) => self.follow_folder(&folder).await,
        }
    }

    async fn follow_secret(self, client: Client, namespace: &str, name: String) {
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(client, namespace);
        let see = |seen: Seen<Secret>| {
            let secrets = match seen {
                Seen::All(secrets) => secrets,
                Seen::Changed(secret) => vec![secret],
                // What was served stays, until there is something else.
                Seen::Gone(_) => Vec::new(),
            };
            for secret in secrets.into_iter().filter_map(|secret| secret.0.ok()) {
                self.replace(&pair_in(&secret, "tls.crt", "tls.key"));
            }
        };
        follow(api, Selection::Name(name), "watch the certificate of the webhook", |_| (), see).await;
    }

    async fn follow_folder(self, folder: &Path) {
        let mut told = None;
        loop {
            match read_folder(folder).await {
                Ok(pair) => {
                    told = None;
                    self.replace(&pair);
                }
                Err(error) => {
                    if told != Some(error.kind()) {
                        tracing::warn!(
                            "cannot read the certificate in {}: {error}; it will be tried again",
                            folder.display()
                        );
                        told = Some(error.kind());
                    }
                }
            }
            sleep(LOOK).await;
        }
    }
}

/// A pair out of a Secret; empty where the Secret has none.
pub(super) fn pair_in(secret: &Secret, certificate: &str, key: &str) -> Pair {
    let bytes = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.clone()).unwrap_or_default()
    };
    Pair { certificate: bytes(certificate), key: bytes(key) }
}

/// The kubelet swaps both files at once. Read between two swaps they do not match, are refused, and read again.
async fn read_folder(folder: &Path) -> std::io::Result<Pair> {
    let read = async |name: &str| {
        let path = folder.join(name);
        if tokio::fs::metadata(&path).await?.len() > LARGEST_FILE {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        tokio::fs::read(path).await
    };
    Ok(Pair { certificate: read("tls.crt").await?, key: read("tls.key").await? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::authority::Authority;

    fn pair() -> Pair {
        Authority::make(Timestamp::UNIX_EPOCH, LOOK).expect("a pair")
    }

    fn served(serving: &Serving) -> Option<Pair> {
        serving.0.served.read().expect("no panic").as_ref().map(|(pair, _)| pair.clone())
    }

    #[test]
    fn a_broken_pair_is_refused_and_the_old_one_stays() {
        let serving = Serving::new();
        let (one, other) = (pair(), pair());
        serving.replace(&Pair::default());
        assert!(!serving.is_ready());
        serving.replace(&one);
        assert_eq!(served(&serving), Some(one.clone()));
        serving.replace(&Pair { certificate: one.certificate.clone(), key: other.key.clone() });
        assert_eq!(served(&serving), Some(one));
        serving.replace(&other);
        assert_eq!(served(&serving), Some(other));
        assert!(serving.end().is_some_and(|end| end > Timestamp::UNIX_EPOCH));
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_is_kept_up_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |pair: &Pair| {
            std::fs::write(folder.path().join("tls.crt"), &pair.certificate).expect("written");
            std::fs::write(folder.path().join("tls.key"), &pair.key).expect("written");
        };
        let serving = Serving::new();
        let following = tokio::spawn({
            let (serving, folder) = (serving.clone(), folder.path().to_owned());
            async move { serving.follow_folder(&folder).await }
        });
        let (one, other) = (pair(), pair());
        for expected in [one, other] {
            write(&expected);
            let arrives = async {
                while served(&serving).as_ref() != Some(&expected) {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::time::timeout(3 * LOOK, arrives).await.expect("it is served within two looks");
        }
        following.abort();
    }
}
