use proptest::prelude::*;
use serde_json::json;

use super::*;

fn cluster(profile: &Value) -> Value {
    json!({"kind": "APIServer", "spec": {"tlsSecurityProfile": profile}})
}

fn custom(ciphers: &[&str], min: &str, curves: &[&str]) -> Result<Honored, String> {
    let custom = json!({"ciphers": ciphers, "minTLSVersion": min, "curves": curves});
    of_cluster(Some(&cluster(&json!({"type": "Custom", "custom": custom}))))
}

#[test]
fn intermediate_is_the_default_and_fully_supported() {
    let expected = of_cluster(Some(&cluster(&json!({"type": "Intermediate", "intermediate": {}})))).unwrap();
    assert_eq!(expected.ignored, [""; 0]);
    assert_eq!((expected.profile.ciphers.len(), &*expected.profile.min_tls_version), (9, TLS_1_2));
    for silent in [None, Some(json!({"spec": {}})), Some(cluster(&Value::Null)), Some(cluster(&json!({})))] {
        assert_eq!(of_cluster(silent.as_ref()), Ok(expected.clone()), "{silent:?}");
    }
    let modern = of_cluster(Some(&cluster(&json!({"type": "Modern", "modern": null})))).unwrap();
    assert_eq!((modern.profile.ciphers.len(), &*modern.profile.min_tls_version), (3, TLS_1_3));
    assert_eq!(modern.ignored, [""; 0]);
}

#[test]
fn what_old_clients_miss_is_reported() {
    let old = of_cluster(Some(&cluster(&json!({"type": "Old"})))).unwrap();
    assert_eq!((old.profile.ciphers.len(), &*old.profile.min_tls_version), (9, TLS_1_2));
    let [version, ciphers] = &old.ignored[..] else { panic!("{:?}", old.ignored) };
    assert_eq!(version, "TLS 1.0 and 1.1 are not supported: the minimum is TLS 1.2");
    assert!(ciphers.starts_with("ciphers that are not supported: ECDHE-ECDSA-AES128-SHA256, "), "{ciphers}");
}

#[test]
fn the_form_of_the_file_is_fixed() {
    let honored = custom(&["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384"], TLS_1_2, &["P-256"]);
    let text = serde_json::to_string(&honored.unwrap().profile).unwrap();
    assert_eq!(
        text,
        r#"{"ciphers":["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256","TLS_AES_256_GCM_SHA384"],"minTLSVersion":"VersionTLS12","curves":["secp256r1"]}"#
    );
}

/// Ciphers and minimum of the profile; the number of supported ciphers, the resulting minimum, and the number of remarks.
#[test]
fn the_ciphers_of_a_custom_profile() {
    const RSA: &str = "ECDHE-RSA-AES128-GCM-SHA256";
    const AES: &str = "TLS_AES_128_GCM_SHA256";
    for (ciphers, min, kept, from, ignored) in [
        (&[RSA, AES][..], TLS_1_2, 2, TLS_1_2, 0),
        (&[AES], TLS_1_2, 1, TLS_1_3, 0),
        (&[AES], "VersionTLS10", 1, TLS_1_3, 1),
        (&[RSA], TLS_1_2, 4, TLS_1_2, 0),
        (&[RSA], TLS_1_3, 3, TLS_1_3, 0),
        (&[RSA, AES], TLS_1_3, 1, TLS_1_3, 0),
        (&[RSA, RSA, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", AES], "", 2, TLS_1_2, 0),
        (&["DES-CBC3-SHA", RSA, "nonsense"], "VersionTLS11", 4, TLS_1_2, 2),
        (&[], TLS_1_3, 0, TLS_1_3, 0),
    ] {
        let honored = custom(ciphers, min, &[]).unwrap();
        let found = (honored.profile.ciphers.len(), &*honored.profile.min_tls_version, honored.ignored.len());
        assert_eq!(found, (kept, from, ignored), "{ciphers:?} from {min:?}: {honored:?}");
    }
}

#[test]
fn curves_have_many_names() {
    let honored =
        custom(&[], TLS_1_2, &["X25519MLKEM768", "P-521", "CurveP384", "X25519", "prime256v1", "P-256"]);
    let honored = honored.unwrap();
    assert_eq!(honored.profile.curves, ["secp384r1", "X25519", "secp256r1"]);
    assert_eq!(honored.ignored, ["curves that are not supported: X25519MLKEM768, P-521"]);
    let groups = json!({"type": "Custom", "custom": {"ciphers": [], "groups": ["secp256r1"]}});
    assert_eq!(of_cluster(Some(&cluster(&groups))).unwrap().profile.curves, ["secp256r1"]);
}

#[test]
fn an_unsupported_profile_is_an_error() {
    let error_of = |profile: Value| of_cluster(Some(&cluster(&profile))).unwrap_err();
    for (profile, part) in [
        (json!({"type": "Newest"}), "\"Newest\""),
        (json!({"type": "Custom"}), "custom is missing"),
        (json!({"type": "Custom", "custom": {"ciphers": "all"}}), "cannot be read"),
        (json!({"type": "Custom", "custom": {"ciphers": ["DES-CBC3-SHA"]}}), "supported: DES-CBC3-SHA"),
        (json!({"type": "Custom", "custom": {"curves": ["P-521"]}}), "supported: P-521"),
        (json!({"type": "Custom", "custom": {"minTLSVersion": "TLSv1.2"}}), "\"TLSv1.2\""),
    ] {
        let error = error_of(profile);
        assert!(error.contains(part), "{error}");
    }
}

proptest! {
    /// The operator writes the result and controllers read it again: both must get the same result.
    #[test]
    fn a_supported_profile_is_not_changed_again(
        ciphers in prop::collection::vec(prop::sample::select([names::MODERN, names::INTERMEDIATE, names::OLD].concat()), 0..6),
        curves in prop::collection::vec(prop::sample::select(&["X25519", "P-521", "P-256", "P-384"][..]), 0..4),
        min in prop::sample::select(&["VersionTLS10", TLS_1_2, TLS_1_3][..]),
    ) {
        if let Ok(honored) = custom(&ciphers, min, &curves) {
            let again = honor(&honored.profile).unwrap();
            prop_assert_eq!(again, Honored { profile: honored.profile, ignored: Vec::new() });
        }
    }
}
