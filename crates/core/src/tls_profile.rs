//! TLS versions, ciphers and curves from the `tlsSecurityProfile` of OpenShift's `APIServer/cluster`, as far as they are
//! supported.
//!
//! Supported is what rustls with ring has: TLS 1.2 and 1.3, only with authenticated encryption and forward secrecy. To
//! allow less than the profile is no risk, but old clients may fail to connect; so what is left out is reported.

mod names;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// TLS settings, in the format of the file that controllers read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsProfile {
    /// IANA names, in order of preference. Empty: all supported ones.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// `VersionTLS12` or `VersionTLS13`.
    #[serde(default, rename = "minTLSVersion")]
    pub min_tls_version: String,
    /// For the key exchange, in order of preference. Empty: all supported ones.
    #[serde(default, alias = "groups")]
    pub curves: Vec<String>,
}

/// The supported part of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Honored {
    pub profile: TlsProfile,
    /// What is not supported, one message each; empty if everything is.
    pub ignored: Vec<String>,
}

pub const TLS_1_2: &str = "VersionTLS12";
const TLS_1_3: &str = "VersionTLS13";

/// The profile of a cluster, from its `APIServer` object; by default Intermediate.
///
/// # Errors
///
/// If the profile cannot be read, or nothing in it is supported.
pub fn of_cluster(api_server: Option<&Value>) -> Result<Honored, String> {
    let wanted = api_server.and_then(|object| object.pointer("/spec/tlsSecurityProfile"));
    let type_ = wanted.and_then(|wanted| wanted["type"].as_str()).filter(|type_| !type_.is_empty());
    // Each profile includes the ciphers of the stricter ones.
    let (ciphers, min) = match type_.unwrap_or("Intermediate") {
        "Old" => ([names::MODERN, names::INTERMEDIATE, names::OLD].concat(), "VersionTLS10"),
        "Intermediate" => ([names::MODERN, names::INTERMEDIATE].concat(), TLS_1_2),
        "Modern" => (names::MODERN.to_vec(), TLS_1_3),
        "Custom" => {
            let custom = wanted.map(|wanted| &wanted["custom"]).filter(|custom| custom.is_object());
            let custom = custom
                .ok_or("tlsSecurityProfile.type is Custom, but tlsSecurityProfile.custom is missing")?;
            let custom = TlsProfile::deserialize(custom)
                .map_err(|error| format!("tlsSecurityProfile.custom cannot be read: {error}"))?;
            return honor(&custom).map_err(|why| format!("tlsSecurityProfile.custom: {why}"));
        }
        other => {
            return Err(format!(
                "tlsSecurityProfile.type is {other:?}; it must be Old, Intermediate, Modern or Custom"
            ));
        }
    };
    honor(&TlsProfile {
        ciphers: ciphers.into_iter().map(str::to_owned).collect(),
        min_tls_version: min.to_owned(),
        curves: Vec::new(),
    })
}

/// The supported part of a profile. For a profile that it has returned before, the result is the same.
///
/// # Errors
///
/// If the minimum version is unknown, or none of the ciphers or curves is supported.
pub fn honor(wanted: &TlsProfile) -> Result<Honored, String> {
    let mut ignored = Vec::new();
    let mut min = match wanted.min_tls_version.as_str() {
        "" | TLS_1_2 => TLS_1_2,
        TLS_1_3 => TLS_1_3,
        "VersionTLS10" => {
            ignored.push("TLS 1.0 and 1.1 are not supported: the minimum is TLS 1.2".to_owned());
            TLS_1_2
        }
        "VersionTLS11" => {
            ignored.push("TLS 1.1 is not supported: the minimum is TLS 1.2".to_owned());
            TLS_1_2
        }
        other => {
            return Err(format!(
                "minTLSVersion is {other:?}; it must be VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"
            ));
        }
    };
    let mut ciphers = supported(&wanted.ciphers, names::cipher, "ciphers", &mut ignored)?;
    let is_tls_1_3 = |name: &&str| names::MODERN.contains(name);
    if !ciphers.is_empty() && ciphers.iter().all(is_tls_1_3) {
        min = TLS_1_3;
    }
    // As in OpenShift, all ciphers of TLS 1.3 are used if none of them is listed.
    if !ciphers.is_empty() && !ciphers.iter().any(is_tls_1_3) {
        ciphers.extend(names::MODERN);
    }
    if min == TLS_1_3 {
        ciphers.retain(is_tls_1_3);
    }
    let curves = supported(&wanted.curves, names::curve, "curves", &mut ignored)?;
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let profile =
        TlsProfile { ciphers: owned(ciphers), min_tls_version: min.to_owned(), curves: owned(curves) };
    Ok(Honored { profile, ignored })
}

/// The supported names of a list, each once and in our spelling.
fn supported(
    wanted: &[String],
    lookup: fn(&str) -> Option<&'static str>,
    what: &str,
    ignored: &mut Vec<String>,
) -> Result<Vec<&'static str>, String> {
    let mut kept = Vec::new();
    let mut unsupported = Vec::new();
    for name in wanted {
        match lookup(name) {
            Some(name) if kept.contains(&name) => {}
            Some(name) => kept.push(name),
            None => unsupported.push(name.as_str()),
        }
    }
    if kept.is_empty() && !wanted.is_empty() {
        return Err(format!("none of these {what} is supported: {}", unsupported.join(", ")));
    }
    if !unsupported.is_empty() {
        ignored.push(format!("{what} that are not supported: {}", unsupported.join(", ")));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
