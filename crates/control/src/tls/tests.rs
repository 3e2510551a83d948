use axum::serve::Listener as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpStream, task::JoinSet};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use super::*;
use crate::{
    certificates::{CertificateAuthority, CertificatePair, WebhookNames},
    tls_listener::TlsListener,
};

const EVERY: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// A listener on loopback that sends nothing, with its profile in a file.
struct Server {
    address: std::net::SocketAddr,
    authority: CertificatePair,
    directory: tempfile::TempDir,
    tls: Tls,
    _accepting: JoinSet<()>,
}

#[expect(clippy::disallowed_methods, reason = "a test is a binary")]
fn clock() -> Timestamp {
    Timestamp::now()
}

impl Server {
    async fn start() -> Self {
        let hour = Duration::from_hours(1);
        let authority = CertificateAuthority::make(clock(), hour).unwrap();
        let names = WebhookNames { service: "s".to_owned(), namespace: "n".to_owned() };
        let serving = ServedCertificate::new();
        serving
            .replace(&CertificateAuthority::read(&authority).unwrap().issue(&names, clock(), hour).unwrap());
        let tls = Tls::new(&serving).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = TlsListener::new(listener, tls.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut open = Vec::new();
            loop {
                open.push(listener.accept().await);
            }
        });
        Self { address, authority, directory: tempfile::tempdir().unwrap(), tls, _accepting: accepting }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("profile.json")
    }

    async fn use_profile(&self, profile: &Value) -> Result<(), ProfileError> {
        std::fs::write(self.file(), profile.to_string()).unwrap();
        self.tls.load(&self.file()).await
    }

    async fn connect(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<TlsStream<TcpStream>> {
        self.connect_as(ring::default_provider(), versions).await
    }

    async fn connect_as(
        &self,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.authority.certificate).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("s.n.svc").unwrap(), stream).await
    }
}

/// What was agreed on: version, cipher, and curve.
fn agreed(stream: &TlsStream<TcpStream>) -> (&'static str, String, &'static str) {
    let connection = stream.get_ref().1;
    let version = connection.protocol_version().unwrap().as_str().unwrap();
    let group = connection.negotiated_key_exchange_group().unwrap().name().as_str().unwrap();
    (version, iana_name(&connection.negotiated_cipher_suite().unwrap()), group)
}

#[tokio::test]
async fn a_minimum_of_1_3_refuses_1_2_and_takes_effect_on_new_connections_alone() {
    let server = Server::start().await;
    server.tls.load(&server.file()).await.expect("no file is no error");
    let mut old = server.connect(&[&TLS12]).await.expect("the default");

    server.use_profile(&json!({"minTLSVersion": "VersionTLS13"})).await.unwrap();
    let error = server.connect(&[&TLS12]).await.expect_err("1.2 is refused");
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    assert_eq!(agreed(&server.connect(EVERY).await.unwrap()).0, "TLSv1_3");
    let quiet = tokio::time::timeout(Duration::from_millis(100), old.read(&mut [0])).await;
    assert!(quiet.is_err(), "the old connection has ended: {quiet:?}");

    std::fs::remove_file(server.file()).unwrap();
    server.tls.load(&server.file()).await.unwrap();
    server.connect(&[&TLS12]).await.expect("the default again");
}

#[tokio::test]
async fn ciphers_and_curves_are_honored() {
    const CHACHA: &str = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let server = Server::start().await;
    let profile = json!({
        "ciphers": ["ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_AES_256_GCM_SHA384"],
        "minTLSVersion": "VersionTLS12",
        "curves": ["P-384"],
    });
    server.use_profile(&profile).await.unwrap();
    let found = agreed(&server.connect(&[&TLS12]).await.unwrap());
    assert_eq!(found, ("TLSv1_2", CHACHA.to_owned(), "secp384r1"));
    let found = agreed(&server.connect(&[&TLS13]).await.unwrap());
    assert_eq!(found, ("TLSv1_3", "TLS_AES_256_GCM_SHA384".to_owned(), "secp384r1"));
    // A client without a common cipher is refused.
    let without = |name: &str| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| iana_name(suite) != name);
        provider
    };
    server.connect_as(without(CHACHA), &[&TLS12]).await.expect_err("no cipher in common");
    server.connect_as(without("TLS_AES_256_GCM_SHA384"), &[&TLS13]).await.expect_err("none here either");
}

#[tokio::test]
async fn a_profile_that_cannot_be_used_is_refused_and_the_one_before_stays() {
    let server = Server::start().await;
    server.use_profile(&json!({"minTLSVersion": "VersionTLS13"})).await.unwrap();
    for bad in [json!({"ciphers": ["DES-CBC3-SHA"]}), json!("{"), json!({"minTLSVersion": 13})] {
        let error = server.use_profile(&bad).await.unwrap_err().to_string();
        assert!(error.contains("profile.json cannot be used: "), "{error}");
        server.connect(&[&TLS12]).await.expect_err("1.2 is still refused");
    }
}

#[tokio::test(start_paused = true)]
async fn the_file_is_followed() {
    let server = Server::start().await;
    let following = tokio::spawn(server.tls.clone().follow(server.file()));
    let in_use = || server.tls.current.read().unwrap().profile.clone().map(|profile| profile.min_tls_version);
    for min in ["VersionTLS12", "VersionTLS13"] {
        std::fs::write(server.file(), json!({"minTLSVersion": min}).to_string()).unwrap();
        let arrives = async {
            while in_use().as_deref() != Some(min) {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(3 * POLL_INTERVAL, arrives).await.expect("it is used within two polls");
    }
    following.abort();
}

/// Otherwise a profile that counts as honored could lack what it asks for.
#[test]
fn everything_that_a_profile_can_name_is_there() {
    let all = honor(&TlsProfile {
        ciphers: ring::ALL_CIPHER_SUITES.iter().map(iana_name).collect(),
        min_tls_version: TLS_1_2.to_owned(),
        curves: vec!["X25519".to_owned(), "P-256".to_owned(), "P-384".to_owned()],
    })
    .unwrap();
    assert_eq!(all.ignored, [""; 0]);
    let provider = provider(&all.profile);
    assert_eq!(provider.cipher_suites.len(), ring::ALL_CIPHER_SUITES.len());
    assert_eq!(provider.kx_groups.len(), ring::ALL_KX_GROUPS.len());
}
