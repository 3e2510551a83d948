//! Certificates that are replaced every few seconds while the API server keeps asking.

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

use knmstate_control::certificates::authority::Authority;

use super::*;

/// A new authority every eight seconds, a new certificate every four.
const QUICK: Intervals = Intervals {
    authority: Duration::from_secs(16),
    authority_overlap: Duration::from_secs(8),
    certificate: Duration::from_secs(8),
    certificate_overlap: Duration::from_secs(4),
};
const AUTHORITIES: usize = 3;
const ROTATIONS_LIMIT: Duration = Duration::from_secs(90);

#[tokio::test]
async fn no_question_goes_unanswered_while_certificates_are_replaced() -> Result<()> {
    let trial = Trial::new(QUICK).await?;
    let mut asked = 0_u16;
    let asking = async {
        loop {
            asked += 1;
            let said = trial.apply("p", &mtu(1400 + asked % 100)).await?;
            ensure!(said.status.success(), "question {asked}: {}", said.stderr());
        }
    };
    let mut seen = Rotations::default();
    let watching = async {
        wait::until(ROTATIONS_LIMIT, "the certificates to be replaced", async || {
            seen.look(&trial).await.map_err(|error| wait::Fatal(format!("{error:#}")))?;
            ensure!(
                seen.authorities.len() >= AUTHORITIES,
                "there were {} authorities",
                seen.authorities.len()
            );
            Ok(())
        })
        .await
    };
    tokio::select! {
        ended = asking => return ended,
        rotated = watching => rotated?,
    }
    ensure!(asked > 10, "only {asked} questions were asked");
    ensure!(seen.served.len() > AUTHORITIES, "{} certificates were served", seen.served.len());
    println!(
        "{asked} policies written and {} handshakes, by {} authorities and {} certificates",
        seen.handshakes,
        seen.authorities.len(),
        seen.served.len()
    );
    Ok(())
}

#[tokio::test]
async fn what_somebody_destroys_is_made_anew() -> Result<()> {
    let trial = Trial::new(Intervals::default()).await?;
    let before = Rotations::of(&trial).await?;
    for destroyed in ["nmstate-webhook", "nmstate-ca"] {
        trial.api.kubectl(["delete", "secret", "--namespace", NAMESPACE, destroyed]).await?.success()?;
        wait::until(LIMIT, "a new certificate that is believed", async || {
            let now = Rotations::of(&trial).await?;
            ensure!(now.served.is_disjoint(&before.served), "the old certificate is served");
            Ok(())
        })
        .await?;
    }
    let emptied = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
    let arguments = ["patch", "validatingwebhookconfiguration", "nmstate", "--type=json", "-p", emptied];
    trial.api.kubectl(arguments).await?.success()?;
    trial.is_asked().await?;
    trial.apply("p", &mtu(1400)).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn certificates_of_another_authority_are_served_until_ours_is_trusted() -> Result<()> {
    // As kubernetes-nmstate leaves them: its keys are of a kind that we do not sign with.
    let names = Names { service: SERVICE.to_owned(), namespace: NAMESPACE.to_owned() };
    let hour = Duration::from_hours(1);
    let theirs = Authority::make(clock(), hour)?;
    let served = Authority::read(&theirs).context("an authority")?.issue(&names, clock(), hour)?;
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
    let trial = Trial::after(Intervals { authority: hour, certificate: hour, ..QUICK }, &objects).await?;

    // Ours is trusted from the start, and served only after a while; at no time is there one that is not believed.
    let leaf = CertificateDer::from_pem_slice(&served.certificate)?.to_vec();
    let first = Rotations::of(&trial).await?;
    ensure!(!first.authorities.contains(&theirs.certificate), "there is no authority of our own");
    let mut seen = Rotations::default();
    wait::until(LIMIT, "a certificate of our own", async || {
        seen.look(&trial).await.map_err(|error| wait::Fatal(format!("{error:#}")))?;
        ensure!(seen.served.iter().any(|served| *served != leaf), "only theirs is served");
        Ok(())
    })
    .await?;
    trial.apply("p", &mtu(1400)).await?.success()?;
    Ok(())
}

/// What was seen of the certificates.
#[derive(Debug, Default)]
struct Rotations {
    authorities: BTreeSet<Vec<u8>>,
    served: BTreeSet<Vec<u8>>,
    handshakes: u32,
}

impl Rotations {
    async fn of(trial: &Trial) -> Result<Self> {
        let mut seen = Self::default();
        seen.look(trial).await?;
        Ok(seen)
    }

    /// Asks for a connection, as an API server does that trusts what the webhook configuration says at this moment.
    async fn look(&mut self, trial: &Trial) -> Result<()> {
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(trial.api.client());
        let webhooks = webhooks.get("nmstate").await?.webhooks.context("no webhooks")?;
        let bundle = webhooks[0].client_config.ca_bundle.clone().context("no bundle")?;
        self.served.insert(served(trial, &bundle.0).await?);
        self.handshakes += 1;
        let secrets: Api<Secret> = Api::namespaced(trial.api.client(), NAMESPACE);
        let authority = secrets.get("nmstate-ca").await?.data.context("an empty Secret")?;
        self.authorities.insert(authority["ca.crt"].0.clone());
        Ok(())
    }
}

/// The certificate that the webhook serves to whoever trusts this bundle and nobody else.
async fn served(trial: &Trial, bundle: &[u8]) -> Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = trial.lab.network().connect(ADDRESS.parse()?).await?;
    let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
    let connection = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = connection.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(chain[0].to_vec())
}
