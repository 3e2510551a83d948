//! Certificates, with and without their keys, and how they are parsed.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use tokio_rustls::rustls::{
    self,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A certificate, without its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pem: String,
    der: Vec<u8>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "certificate from {} to {}", self.not_before, self.not_after)
    }
}

impl Certificate {
    /// The certificates in PEM, in their order; those that cannot be parsed are left out.
    pub fn read_all(text: &[u8]) -> Vec<Self> {
        let text = String::from_utf8_lossy(text);
        let blocks = text.split(BEGIN).skip(1).filter_map(|block| block.split_once(END));
        blocks.filter_map(|(inside, _)| Self::read(format!("{BEGIN}\n{}\n{END}\n", inside.trim()))).collect()
    }

    fn read(pem: String) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?.to_vec();
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let validity = parsed.validity();
        let not_before = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
        let not_after = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
        Some(Self { pem, der, not_before, not_after })
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn is_valid_at(&self, time: Timestamp) -> bool {
        self.not_before <= time && time < self.not_after
    }

    pub fn is_signed_by(&self, other: &Self) -> bool {
        let (Ok((_, own)), Ok((_, other))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&other.der))
        else {
            return false;
        };
        own.issuer() == other.subject() && own.verify_signature(Some(other.public_key())).is_ok()
    }

    /// Whether it is valid for all of these DNS names.
    pub fn has_names(&self, names: &[String]) -> bool {
        let Ok((_, own)) = X509Certificate::from_der(&self.der) else { return false };
        let Ok(Some(alternatives)) = own.subject_alternative_name() else { return false };
        names.iter().all(|name| {
            alternatives
                .value
                .general_names
                .iter()
                .any(|known| matches!(known, GeneralName::DNSName(known) if known == name))
        })
    }

    /// The public key, as it is encoded in the certificate.
    pub(super) fn public_key(&self) -> Option<Vec<u8>> {
        let (_, own) = X509Certificate::from_der(&self.der).ok()?;
        Some(own.public_key().raw.to_vec())
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CertificatePair {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for CertificatePair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a certificate and its key")
    }
}

/// Why a pair cannot be served. The messages do not contain the key.
#[derive(Debug, thiserror::Error)]
pub enum UnusablePair {
    #[error("it has no valid certificate")]
    NoCertificate,
    #[error("it has no valid private key")]
    NoKey,
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
}

impl CertificatePair {
    /// The pair in the form that rustls serves.
    pub fn certified(&self) -> Result<CertifiedKey, UnusablePair> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(UnusablePair::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| UnusablePair::NoKey)?;
        CertifiedKey::from_der(chain, key, &Arc::new(ring::default_provider())).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => UnusablePair::KeyMismatch,
            rustls::Error::InvalidCertificate(_) => UnusablePair::NoCertificate,
            _ => UnusablePair::NoKey,
        })
    }

    /// The first certificate, if the pair can be served.
    pub fn leaf(&self) -> Option<Certificate> {
        self.certified().ok()?;
        Certificate::read_all(&self.certificate).into_iter().next()
    }
}
