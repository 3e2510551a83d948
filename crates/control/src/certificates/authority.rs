//! The controllers' own certificate authority: creates authorities and signs certificates.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use time::OffsetDateTime;

use super::certificate::{Certificate, CertificatePair};

/// The common name of the authority.
const NAME: &str = "nmstate";
/// How much the clocks of the API server and of the controller may differ.
const SKEW: Duration = Duration::from_mins(5);

/// The Service of the webhook, from which the DNS names of its certificate follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookNames {
    pub service: String,
    pub namespace: String,
}

impl WebhookNames {
    fn common(&self) -> String {
        format!("{}.{}.pod.cluster.local", self.service, self.namespace)
    }

    pub(crate) fn alternatives(&self) -> Vec<String> {
        let Self { service, namespace } = self;
        vec![
            service.clone(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}

/// An authority that can sign.
#[derive(Debug)]
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    not_after: Timestamp,
}

impl CertificateAuthority {
    /// Creates an authority that expires after `lifetime`.
    pub fn make(now: Timestamp, lifetime: Duration) -> Result<CertificatePair, Error> {
        let key = KeyPair::generate()?;
        let mut params = params(NAME, now, now + lifetime, lifetime)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        Ok(pair(&certificate, &key))
    }

    /// Loads an authority; `None` if it cannot sign, such as those of kubernetes-nmstate, whose keys are of another type.
    pub fn read(pair: &CertificatePair) -> Option<Self> {
        let certificate = Certificate::read_all(&pair.certificate).into_iter().next()?;
        let key = KeyPair::from_pem(std::str::from_utf8(&pair.key).ok()?).ok()?;
        if certificate.public_key()? != key.subject_public_key_info() {
            return None;
        }
        let issuer = Issuer::from_ca_cert_pem(certificate.pem(), key).ok()?;
        Some(Self { issuer, not_after: certificate.not_after })
    }

    /// A certificate for the webhook. It ends after `lifetime`, and not after its authority.
    pub fn issue(
        &self,
        names: &WebhookNames,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<CertificatePair, Error> {
        let key = KeyPair::generate()?;
        let mut params = params(&names.common(), now, (now + lifetime).min(self.not_after), lifetime)?;
        let alternatives =
            names.alternatives().into_iter().map(|name| Ok(rcgen::SanType::DnsName(name.try_into()?)));
        params.subject_alt_names = alternatives.collect::<Result<_, Error>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Authorities have one name, so this is how the API server finds the one that has signed.
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(pair(&certificate, &key))
    }
}

fn params(
    name: &str,
    now: Timestamp,
    end: Timestamp,
    lifetime: Duration,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date(now - SKEW.min(lifetime / 10))?;
    params.not_after = date(end)?;
    Ok(params)
}

fn date(time: Timestamp) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| Error::Time)
}

fn pair(certificate: &rcgen::Certificate, key: &KeyPair) -> CertificatePair {
    CertificatePair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).expect("a time")
    }

    fn names() -> WebhookNames {
        WebhookNames { service: "nmstate-webhook".to_owned(), namespace: "nmstate".to_owned() }
    }

    #[test]
    fn what_an_authority_issues_is_signed_by_it_and_has_the_names_of_the_service() {
        let root = CertificateAuthority::make(now(), 2 * DAY).expect("an authority");
        let authority = CertificateAuthority::read(&root).expect("it can be read");
        let issued = authority.issue(&names(), now(), DAY).expect("a certificate");
        let leaf = issued.leaf().expect("a sound pair");
        let root = root.leaf().expect("a sound pair");
        assert!(leaf.is_signed_by(&root) && root.is_signed_by(&root));
        assert!(leaf.is_valid_at(now()) && !leaf.is_valid_at(now() + DAY));
        assert!(leaf.has_names(&names().alternatives()));
        assert!(!leaf.has_names(&["nmstate-webhook.other.svc".to_owned()]));
        let other =
            CertificateAuthority::make(now(), DAY).expect("an authority").leaf().expect("a sound pair");
        assert!(!leaf.is_signed_by(&other));
    }

    #[test]
    fn nothing_outlives_its_authority() {
        let root = CertificateAuthority::make(now(), DAY).expect("an authority");
        let issued =
            CertificateAuthority::read(&root).expect("it can be read").issue(&names(), now(), 9 * DAY);
        let leaf = issued.expect("a certificate").leaf().expect("a sound pair");
        assert_eq!(leaf.not_after, now() + DAY);
    }

    #[test]
    fn a_pair_of_strangers_is_none() {
        let (one, other) = (
            CertificateAuthority::make(now(), DAY).expect("one"),
            CertificateAuthority::make(now(), DAY).expect("another"),
        );
        let mixed = CertificatePair { certificate: one.certificate.clone(), key: other.key };
        assert!(CertificateAuthority::read(&mixed).is_none());
        assert!(mixed.leaf().is_none());
        assert!(mixed.certified().expect_err("strangers").to_string().contains("does not belong"));
        assert!(
            CertificateAuthority::read(&CertificatePair {
                certificate: one.certificate,
                key: b"hush".to_vec()
            })
            .is_none()
        );
        assert!(CertificateAuthority::read(&CertificatePair::default()).is_none());
    }
}
