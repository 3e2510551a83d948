//! Names of ciphers and curves by IANA, OpenSSL and Go.

/// The profiles of Mozilla's guidelines 5.7 as OpenShift has them, in OpenSSL's names.
pub(super) const MODERN: &[&str] =
    &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The additional ciphers of Intermediate.
pub(super) const INTERMEDIATE: &[&str] = &[
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// The additional ciphers of Old.
pub(super) const OLD: &[&str] = &[
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// The IANA name of a supported cipher; Go's names lack the hash after POLY1305.
pub(super) fn cipher(name: &str) -> Option<&'static str> {
    Some(match name {
        "TLS_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256" | "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        }
        "ECDHE-RSA-AES128-GCM-SHA256" | "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => {
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        }
        "ECDHE-ECDSA-AES256-GCM-SHA384" | "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => {
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
        }
        "ECDHE-RSA-AES256-GCM-SHA384" | "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => {
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        }
        "ECDHE-ECDSA-CHACHA20-POLY1305"
        | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"
        | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305"
        | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"
        | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        _ => return None,
    })
}

/// The IANA name of a supported curve. ring does not support X25519MLKEM768 and P-521.
pub(super) fn curve(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "x25519" => "X25519",
        "secp256r1" | "p-256" | "p256" | "prime256v1" | "curvep256" => "secp256r1",
        "secp384r1" | "p-384" | "p384" | "curvep384" => "secp384r1",
        _ => return None,
    })
}
