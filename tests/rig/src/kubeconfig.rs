//! Kubeconfig files, with everything inside so that they can be handed into a node.

use serde_json::{Value, json};

use crate::pki::Identity;

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

pub fn with_token(server: &str, authority: &Identity, token: &str) -> String {
    render(server, authority, &json!({ "token": token }))
}

/// JSON is YAML, and both kube and kubectl read it.
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
    // ByteString is how Kubernetes' own types spell base64, which saves a crate.
    match serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())) {
        Ok(Value::String(encoded)) => encoded,
        _ => String::new(),
    }
}
