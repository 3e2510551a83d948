//! How TLS is to be spoken, as OpenShift says it in the `tlsSecurityProfile` of `APIServer/cluster`, and what of that
//! can be done here.
//!
//! What can be done is what rustls with ring can do: TLS 1.2 and 1.3, with authenticated encryption and forward secrecy
//! only. Less than a profile allows is never a risk, but somebody may wonder why an old client does not get through; so
//! what is left out is said.

mod names;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How TLS is spoken, in the form that controllers read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsProfile {
    /// By their IANA names, the preferred ones first. Empty: all that there are.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// `VersionTLS12` or `VersionTLS13`.
    #[serde(default, rename = "minTLSVersion")]
    pub min_tls_version: String,
    /// For the exchange of keys, the preferred ones first. Empty: all that there are.
    #[serde(default, alias = "groups")]
    pub curves: Vec<String>,
}

/// A profile that can be kept, and what of the wanted one cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Honored {
    pub profile: TlsProfile,
    /// In words, one sentence each; empty if all of it can be kept.
    pub ignored: Vec<String>,
}

pub const TLS_1_2: &str = "VersionTLS12";
pub const TLS_1_3: &str = "VersionTLS13";

/// The profile of a cluster, by its `APIServer` object; without one, and where it says nothing, Intermediate. An error
/// says why nothing of it can be kept.
pub fn of_cluster(api_server: Option<&Value>) -> Result<Honored, String> {
    let wanted = api_server.and_then(|object| object.pointer("/spec/tlsSecurityProfile"));
    let type_ = wanted.and_then(|wanted| wanted["type"].as_str()).filter(|type_| !type_.is_empty());
    // Each profile has what the stricter ones have, and more.
    let (ciphers, min) = match type_.unwrap_or("Intermediate") {
        "Old" => ([names::MODERN, names::INTERMEDIATE, names::OLD].concat(), "VersionTLS10"),
        "Intermediate" => ([names::MODERN, names::INTERMEDIATE].concat(), TLS_1_2),
        "Modern" => (names::MODERN.to_vec(), TLS_1_3),
        "Custom" => {
            let custom = wanted.map(|wanted| &wanted["custom"]).filter(|custom| custom.is_object());
            let custom = custom.ok_or("tlsSecurityProfile.type is Custom, but there is no custom in it")?;
            let custom = TlsProfile::deserialize(custom)
                .map_err(|error| format!("tlsSecurityProfile.custom cannot be read: {error}"))?;
            return honor(&custom).map_err(|why| format!("tlsSecurityProfile.custom: {why}"));
        }
        other => {
            return Err(format!(
                "tlsSecurityProfile.type is {other:?}, which is none of Old, Intermediate, Modern and Custom"
            ));
        }
    };
    honor(&TlsProfile {
        ciphers: ciphers.into_iter().map(str::to_owned).collect(),
        min_tls_version: min.to_owned(),
        curves: Vec::new(),
    })
}

/// What of a profile can be kept. What comes out stays as it is when it is asked about again.
pub fn honor(wanted: &TlsProfile) -> Result<Honored, String> {
    let mut ignored = Vec::new();
    let mut min = match wanted.min_tls_version.as_str() {
        "" | TLS_1_2 => TLS_1_2,
        TLS_1_3 => TLS_1_3,
        "VersionTLS10" => {
            ignored.push("TLS 1.0 and 1.1 are not spoken: the minimum is TLS 1.2".to_owned());
            TLS_1_2
        }
        "VersionTLS11" => {
            ignored.push("TLS 1.1 is not spoken: the minimum is TLS 1.2".to_owned());
            TLS_1_2
        }
        other => return Err(format!("minTLSVersion {other:?} is none of VersionTLS10 to VersionTLS13")),
    };
    let mut ciphers = known(&wanted.ciphers, names::cipher, "ciphers", &mut ignored)?;
    let is_new = |name: &&str| names::MODERN.contains(name);
    if !ciphers.is_empty() && ciphers.iter().all(is_new) {
        min = TLS_1_3;
    }
    // As OpenShift has it, those of TLS 1.3 are there whenever no choice is made among them.
    if !ciphers.is_empty() && !ciphers.iter().any(is_new) {
        ciphers.extend(names::MODERN);
    }
    if min == TLS_1_3 {
        ciphers.retain(is_new);
    }
    let curves = known(&wanted.curves, names::curve, "curves", &mut ignored)?;
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let profile =
        TlsProfile { ciphers: owned(ciphers), min_tls_version: min.to_owned(), curves: owned(curves) };
    Ok(Honored { profile, ignored })
}

/// Those that can be kept, each once, under the names that we know them by.
fn known(
    wanted: &[String],
    known: fn(&str) -> Option<&'static str>,
    what: &str,
    ignored: &mut Vec<String>,
) -> Result<Vec<&'static str>, String> {
    let mut kept = Vec::new();
    let mut unknown = Vec::new();
    for name in wanted {
        match known(name) {
            Some(name) if kept.contains(&name) => {}
            Some(name) => kept.push(name),
            None => unknown.push(name.as_str()),
        }
    }
    if kept.is_empty() && !wanted.is_empty() {
        return Err(format!("none of these {what} is available: {}", unknown.join(", ")));
    }
    if !unknown.is_empty() {
        ignored.push(format!("{what} that are not available: {}", unknown.join(", ")));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
