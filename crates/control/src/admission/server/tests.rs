use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use super::*;
use crate::{
    admission::{
        review::tests::{now, policy, review_of},
        validation::NOT_COMPARED,
    },
    certificates::{CertificateAuthority, CertificatePair, ServedCertificate, WebhookNames},
};

const SOON: Duration = Duration::from_secs(10);

/// A webhook on loopback, and the authority of its certificate.
struct Webhook {
    address: SocketAddr,
    serving: ServedCertificate,
    authority: CertificatePair,
    stop: oneshot::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "a test is a binary")]
fn clock() -> Timestamp {
    Timestamp::now()
}

impl Webhook {
    async fn start() -> Self {
        let authority = CertificateAuthority::make(clock(), Duration::from_hours(1)).expect("an authority");
        let serving = ServedCertificate::new();
        serving.replace(&issued(&authority));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let (_, index) = watch::channel(None);
        let others = Router::new().route("/metrics", get(async || "up 1"));
        let tls = Tls::new(&serving).expect("TLS");
        let server = tokio::spawn(serve(listener, tls, AdmissionServer::new(index, now), others, async {
            let _ = stopped.await;
        }));
        Self { address, serving, authority, stop, server }
    }

    async fn connect(&self, protocols: &[&[u8]]) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.authority.certificate).expect("PEM")).expect("a root");
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocols")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from("s.n.svc").expect("a name");
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Status and body of the response to one request on a new connection.
    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let mut connection = self.connect(&[]).await.expect("a connection");
        ask_on(&mut connection, method, path, body).await
    }
}

fn issued(authority: &CertificatePair) -> CertificatePair {
    let names = WebhookNames { service: "s".to_owned(), namespace: "n".to_owned() };
    let authority = CertificateAuthority::read(authority).expect("an authority");
    authority.issue(&names, clock(), Duration::from_hours(1)).expect("a certificate")
}

async fn ask_on(
    connection: &mut TlsStream<TcpStream>,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: s.n.svc\r\nContent-Length: {}\r\n\r\n", body.len());
    connection.write_all(head.as_bytes()).await.expect("sent");
    // The server may refuse a body before all of it was sent.
    let _ = connection.write_all(body).await;
    let read = async {
        let mut text = String::new();
        let mut bytes = [0; 4096];
        loop {
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
                });
                if body.len() >= length.unwrap_or(0) {
                    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
                    return (status, body.to_owned());
                }
            }
            let count = connection.read(&mut bytes).await.expect("an answer");
            assert!(count > 0, "the connection has ended after {text:?}");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    timeout(SOON, read).await.expect("an answer in time")
}

#[tokio::test]
async fn admission_reviews_are_answered_and_other_requests_are_refused() {
    let webhook = Webhook::start().await;
    for path in ["/readyz", "/healthz", "/metrics"] {
        assert_eq!(webhook.ask("GET", path, b"").await.0, 200, "{path}");
    }
    assert_eq!(webhook.ask("GET", "/elsewhere", b"").await.0, 404);
    let path = Endpoint::ValidatePolicy.path();
    assert_eq!(webhook.ask("GET", path, b"").await.0, 405);
    assert_eq!(webhook.ask("POST", path, b"{}").await.0, 400);
    assert_eq!(webhook.ask("POST", path, &vec![b' '; MAX_BODY + 1]).await.0, 413);

    let bad = policy(&json!({ "desiredState": { "interfacs": [] } }));
    let (code, body) =
        webhook.ask("POST", path, &review_of("admission.k8s.io/v1", "CREATE", &bad, &Value::Null)).await;
    let review: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((code, &review["response"]["allowed"]), (200, &json!(false)), "{review}");
}

#[tokio::test]
async fn a_new_certificate_is_served_to_new_connections_and_the_old_ones_stay() {
    let webhook = Webhook::start().await;
    let mut old = webhook.connect(&[]).await.expect("a connection");
    let leaf =
        |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().expect("a chain")[0].to_vec();
    webhook.serving.replace(&issued(&webhook.authority));
    let new = webhook.connect(&[]).await.expect("a connection");
    assert_ne!(leaf(&old), leaf(&new));
    assert_eq!(ask_on(&mut old, "GET", "/readyz", b"").await.0, 200);
    assert_eq!(ask_on(&mut old, "GET", "/readyz", b"").await.0, 200);
}

#[tokio::test]
async fn silent_connections_do_not_delay_others() {
    let webhook = Webhook::start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(webhook.address).await.expect("a connection"));
    }
    assert_eq!(timeout(SOON, webhook.ask("GET", "/readyz", b"")).await.expect("in time").0, 200);
}

#[tokio::test]
async fn idle_connections_do_not_occupy_the_places_of_others() {
    let webhook = Webhook::start().await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(webhook.connect(&[]).await.expect("a connection"));
    }
    let path = Endpoint::ValidatePolicy.path();
    let body = review_of("admission.k8s.io/v1", "CREATE", &policy(&json!({})), &Value::Null);
    assert_eq!(timeout(SOON, webhook.ask("POST", path, &body)).await.expect("in time").0, 200);
    // Those that were opened last are still there.
    let last = idle.last_mut().expect("a connection");
    assert_eq!(ask_on(last, "POST", path, &body).await.0, 200);
}

/// A policy whose check takes the linear search of a parser minutes: the last of many routes has a mistake.
fn policy_of_many_routes() -> Value {
    let mut routes: Vec<Value> = (0..5000)
        .map(|index| {
            json!({ "destination": format!("10.{}.{}.0/24", index / 250, index % 250), "next-hop-interface": "eth1",
                "next-hop-address": "192.0.2.1", "table-id": 254 })
        })
        .collect();
    routes[4999]["metrik"] = json!(1);
    policy(&json!({ "desiredState": { "routes": { "config": routes } } }))
}

#[tokio::test]
async fn a_large_policy_is_refused_with_the_key() {
    let webhook = Webhook::start().await;
    let body = review_of("admission.k8s.io/v1", "CREATE", &policy_of_many_routes(), &Value::Null);
    assert!(body.len() > LARGE);
    let (code, body) = webhook.ask("POST", Endpoint::ValidatePolicy.path(), &body).await;
    let review: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((code, &review["response"]["allowed"]), (200, &json!(false)), "{review}");
    let message = review["response"]["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("desiredState: routes.config[4999].metrik: unknown key"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn while_all_places_are_taken_a_policy_is_allowed_with_a_warning() {
    let (_, index) = watch::channel(None);
    let server = AdmissionServer::new(index, now);
    let small = review_of("admission.k8s.io/v1", "CREATE", &policy(&json!({})), &Value::Null);
    let large = review_of("admission.k8s.io/v1", "CREATE", &policy_of_many_routes(), &Value::Null);
    let ask = async |endpoint, body: &[u8]| {
        let request = Request::post("/").header(CONTENT_LENGTH, body.len());
        let request = request.body(axum::body::Body::from(body.to_vec())).expect("a request");
        let response = server.respond(endpoint, request).await;
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_BODY).await.expect("a body");
        (status, serde_json::from_slice::<Value>(&body).unwrap_or_default())
    };
    let _all = server.large.acquire_many(u32::try_from(MAX_LARGE).expect("few")).await.expect("places");
    let (status, review) = ask(Endpoint::ValidatePolicy, &large).await;
    assert_eq!((status, &review["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(review["response"]["warnings"], json!([BUSY]));
    // Neither small ones nor mutations wait for large ones.
    let (status, review) = ask(Endpoint::ValidatePolicy, &small).await;
    assert_eq!((status, &review["response"]["warnings"]), (StatusCode::OK, &json!([NOT_COMPARED])));
    let (status, review) = ask(Endpoint::MutateTimestamp, &large).await;
    assert_eq!((status, &review["response"]["patchType"]), (StatusCode::OK, &json!("JSONPatch")));

    let _bodies = server.large_bodies.acquire_many(u32::try_from(MAX_LARGE_BODIES).expect("few")).await;
    assert_eq!(ask(Endpoint::ValidatePolicy, &large).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask(Endpoint::ValidatePolicy, &small).await.0, StatusCode::OK);
}

#[tokio::test]
async fn http_2_is_refused() {
    let webhook = Webhook::start().await;
    assert!(webhook.connect(&[b"h2"]).await.is_err());
    let both = webhook.connect(&[b"h2", b"http/1.1"]).await.expect("a connection");
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn it_stops_on_request_although_connections_are_open() {
    let webhook = Webhook::start().await;
    let mut open = webhook.connect(&[]).await.expect("a connection");
    assert_eq!(ask_on(&mut open, "GET", "/readyz", b"").await.0, 200);
    webhook.stop.send(()).expect("it runs");
    timeout(SOON, webhook.server).await.expect("it stops in time").expect("no panic").expect("no error");
    assert!(TcpStream::connect(webhook.address).await.is_err(), "the port is closed");
}
