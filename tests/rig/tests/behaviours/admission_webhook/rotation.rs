//! Certificates that are replaced every few seconds while the API server calls the webhook.

use std::collections::BTreeSet;

use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use knmstate_control::CertificateAuthority;

use super::*;

/// A new authority every ten seconds, a new certificate every eight and with each authority.
const QUICK: RotationIntervals = RotationIntervals {
    authority: Duration::from_secs(20),
    authority_overlap: Duration::from_secs(10),
    certificate: Duration::from_secs(16),
    certificate_overlap: Duration::from_secs(8),
};
const AUTHORITIES: usize = 3;
const ROTATIONS_LIMIT: Duration = Duration::from_secs(90);

/// An operator that is late: later than API servers have to load an authority, but sooner than two certificates overlap.
const DELAY: Duration = Duration::from_secs(4);

#[tokio::test]
async fn every_request_is_answered_while_certificates_are_replaced() -> Result<()> {
    let fixture = WebhookFixture::after(QUICK, DELAY, "").await?;
    let mut requests = 0_u16;
    let sending = async {
        loop {
            requests += 1;
            let answer = fixture.apply("p", &mtu(1400 + requests % 100)).await?;
            ensure!(answer.status.success(), "request {requests}: {}", answer.stderr());
        }
    };
    let mut seen = Rotations::default();
    let watching = async {
        wait::until(ROTATIONS_LIMIT, "the certificates to be replaced", async || {
            seen.observe(&fixture).await.map_err(|error| wait::Fatal(format!("{error:#}")))?;
            ensure!(
                seen.authorities.len() >= AUTHORITIES,
                "there were {} authorities",
                seen.authorities.len()
            );
            ensure!(seen.served.len() > AUTHORITIES, "{} certificates were served", seen.served.len());
            Ok(())
        })
        .await
    };
    tokio::select! {
        ended = sending => return ended,
        rotated = watching => rotated?,
    }
    ensure!(requests > 10, "only {requests} requests were sent");
    println!(
        "{requests} policies written and {} handshakes, with {} authorities and {} certificates",
        seen.handshakes,
        seen.authorities.len(),
        seen.served.len()
    );
    Ok(())
}

#[tokio::test]
async fn deleted_certificates_are_created_again() -> Result<()> {
    let fixture = WebhookFixture::new(RotationIntervals::default()).await?;
    let before = Rotations::of(&fixture).await?;
    for deleted in ["nmstate-webhook", "nmstate-ca"] {
        fixture.api.kubectl(["delete", "secret", "--namespace", NAMESPACE, deleted]).await?.success()?;
        wait::until(LIMIT, "a new certificate that is trusted", async || {
            let now = Rotations::of(&fixture).await?;
            ensure!(now.served.is_disjoint(&before.served), "the old certificate is served");
            Ok(())
        })
        .await?;
    }
    let emptied = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
    let arguments = ["patch", "validatingwebhookconfiguration", "nmstate", "--type=json", "-p", emptied];
    fixture.api.kubectl(arguments).await?.success()?;
    fixture.wait_until_called().await?;
    fixture.apply("p", &mtu(1400)).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn certificates_of_another_authority_are_served_until_ours_is_trusted() -> Result<()> {
    // As kubernetes-nmstate leaves them: with RSA keys, which we do not sign with.
    let names = WebhookNames { service: SERVICE.to_owned(), namespace: NAMESPACE.to_owned() };
    let hour = Duration::from_hours(1);
    let theirs = CertificateAuthority::make(clock(), hour)?;
    let served = CertificateAuthority::read(&theirs).context("an authority")?.issue(&names, clock(), hour)?;
    let secret = |name: &str, kind: &str, data: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": NAMESPACE }, "type": kind, "stringData": data });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let authority =
        json!({ "ca.crt": text(&theirs.certificate), "ca.key": "-----BEGIN RSA PRIVATE KEY-----" });
    let pair = json!({ "tls.crt": text(&served.certificate), "tls.key": text(&served.key) });
    let objects = format!(
        "{}\n---\n{}",
        secret("nmstate-ca", "Opaque", authority),
        secret(SERVICE, "kubernetes.io/tls", pair)
    );
    let fixture = WebhookFixture::after(
        RotationIntervals { authority: hour, certificate: hour, ..QUICK },
        DELAY,
        &objects,
    )
    .await?;

    // The bundle has our authority from the start, our certificate is served later, and each served one is trusted.
    let leaf = CertificateDer::from_pem_slice(&served.certificate)?.to_vec();
    let first = Rotations::of(&fixture).await?;
    ensure!(!first.authorities.contains(&theirs.certificate), "there is no authority of our own");
    let mut seen = Rotations::default();
    wait::until(LIMIT, "a certificate of our own", async || {
        seen.observe(&fixture).await.map_err(|error| wait::Fatal(format!("{error:#}")))?;
        ensure!(seen.served.iter().any(|served| *served != leaf), "only theirs is served");
        Ok(())
    })
    .await?;
    fixture.apply("p", &mtu(1400)).await?.success()?;
    Ok(())
}

/// The certificates that were seen.
#[derive(Debug, Default)]
struct Rotations {
    authorities: BTreeSet<Vec<u8>>,
    served: BTreeSet<Vec<u8>>,
    handshakes: u32,
}

impl Rotations {
    async fn of(fixture: &WebhookFixture) -> Result<Self> {
        let mut seen = Self::default();
        seen.observe(fixture).await?;
        Ok(seen)
    }

    /// Connects as the API server does, which trusts the CA bundle that the webhook configuration has now.
    async fn observe(&mut self, fixture: &WebhookFixture) -> Result<()> {
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(fixture.api.client());
        let webhooks = webhooks.get("nmstate").await?.webhooks.context("no webhooks")?;
        let bundle = webhooks[0].client_config.ca_bundle.clone().context("no bundle")?;
        self.served.insert(served(fixture, &bundle.0).await?);
        self.handshakes += 1;
        let secrets: Api<Secret> = Api::namespaced(fixture.api.client(), NAMESPACE);
        let authority = secrets.get("nmstate-ca").await?.data.context("an empty Secret")?;
        self.authorities.insert(authority["ca.crt"].0.clone());
        Ok(())
    }
}

/// The certificate that the webhook serves to a client that trusts only this bundle.
async fn served(fixture: &WebhookFixture, bundle: &[u8]) -> Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = fixture.lab.network().connect(ADDRESS.parse()?).await?;
    let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
    let connection = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = connection.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(chain[0].to_vec())
}
