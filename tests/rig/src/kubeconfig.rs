//! Kubeconfig files that contain their certificates and keys, so that a node needs no other file.

use serde_json::{Value, json};

use crate::pki::Identity;

/// For a user with a client certificate.
pub fn with_certificate(server: &str, authority: &Identity, client: &Identity) -> String {
    render(
        server,
        authority,
        &json!({
            "client-certificate-data": base64(&client.certificate),
            "client-key-data": base64(&client.key),
        }),
    )
}

/// For a user with a token.
pub fn with_token(server: &str, authority: &Identity, token: &str) -> String {
    render(server, authority, &json!({ "token": token }))
}

/// Returns JSON, which is YAML as well: both kube and kubectl read it.
fn render(server: &str, authority: &Identity, user: &Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": server,
            "certificate-authority-data": base64(&authority.certificate),
        }}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
        "current-context": "lab",
    })
    .to_string()
}

fn base64(text: &str) -> String {
    // ByteString serializes as base64, so that the rig needs no crate for it.
    match serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())) {
        Ok(Value::String(encoded)) => encoded,
        _ => String::new(),
    }
}
