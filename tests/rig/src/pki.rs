//! The certificates of a lab's cluster. Each API server gets new ones, with elliptic-curve keys, which are quick to
//! generate.

use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::process::write_private;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Identity {
    /// Writes `<name>.crt` and `<name>.key`.
    pub fn write(&self, directory: &Path, name: &str) -> Result<()> {
        std::fs::write(directory.join(format!("{name}.crt")), &self.certificate)?;
        write_private(&directory.join(format!("{name}.key")), &self.key)
    }
}

impl Authority {
    /// Generates a key and a self-signed certificate with this common name.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        let key_pem = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, key: key_pem })
    }

    /// Its own certificate and key.
    pub fn identity(&self) -> Identity {
        Identity { certificate: self.certificate.clone(), key: self.key.clone() }
    }

    /// Signs a server certificate for these DNS names and IP addresses.
    pub fn server(&self, name: &str, alternatives: &[&str]) -> Result<Identity> {
        let alternatives: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
        self.sign(CertificateParams::new(alternatives)?, name, &[], ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Signs a client certificate for a user of Kubernetes: the common name is the user, each organisation a group.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        self.sign(CertificateParams::default(), user, groups, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        organisations: &[&str],
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        let key = KeyPair::generate()?;
        params.distinguished_name = distinguished_name(name, organisations);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

fn distinguished_name(name: &str, organisations: &[&str]) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    for organisation in organisations {
        full.push(DnType::OrganizationName, *organisation);
    }
    full.push(DnType::CommonName, name);
    full
}

/// Generates the key pair for ServiceAccount tokens: the private key that signs them, and the public key, in PEM.
pub fn signing_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
