//! The API server, as far as probes need it.

use std::{error::Error, fmt, io};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use knmstate_core::probes::NodeReadiness;
use kube::{Api, Client, Config};

use super::attempt_error::Unreachable;

/// The API server that probes ask.
///
/// An implementation opens a new connection for every call: one that was opened before a change may still work although
/// a new one could not be opened. Callers set the time limit.
pub trait ApiEndpoint: fmt::Debug + Send + Sync {
    /// The address of the server, for messages.
    fn address(&self) -> String;

    /// Gets any response from the API server.
    fn reach(&self) -> BoxFuture<'_, Result<(), Unreachable>>;

    /// Gets the readiness of this node.
    fn node(&self) -> BoxFuture<'_, Result<NodeReadiness, Unreachable>>;
}

/// The API server of a client configuration.
pub struct KubeApiEndpoint {
    config: Config,
    node: String,
}

/// Without the configuration, which carries credentials.
impl fmt::Debug for KubeApiEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeApiEndpoint")
            .field("address", &self.address())
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl KubeApiEndpoint {
    /// The API server of `config`, for the node of this name.
    pub fn new(mut config: Config, node: impl Into<String>) -> Self {
        // The prober retries.
        config.default_retry = false;
        Self { config, node: node.into() }
    }

    fn client(&self) -> Result<Client, Unreachable> {
        Client::try_from(self.config.clone()).map_err(|error| Unreachable::from_error(&error))
    }
}

impl ApiEndpoint for KubeApiEndpoint {
    fn address(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    fn reach(&self) -> BoxFuture<'_, Result<(), Unreachable>> {
        async {
            match self.client()?.apiserver_version().await {
                // A refusal proves that the server responds.
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(()),
                Err(error) => Err(unreached(&error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }

    fn node(&self) -> BoxFuture<'_, Result<NodeReadiness, Unreachable>> {
        async {
            let client = self.client()?;
            let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
            let nodes: Api<Node> = Api::all(client);
            let (node, lease) = tokio::join!(nodes.get(&self.node), leases.get_opt(&self.node));
            let node = node.map_err(|error| unreached(&error))?;
            let lease = match lease {
                // Without the right to read leases, use the conditions of the node alone.
                Err(kube::Error::Api(status)) if status.code == 403 => None,
                lease => lease.map_err(|error| unreached(&error))?,
            };
            let renewed = lease.and_then(|lease| lease.spec?.renew_time).map(|time| time.0);
            Ok(NodeReadiness { not_ready: not_ready(&node), renewed })
        }
        .boxed()
    }
}

fn unreached(error: &kube::Error) -> Unreachable {
    match error {
        kube::Error::Api(status) => {
            Unreachable::because(format!("HTTP {} ({}): {}", status.code, status.reason, status.message))
        }
        error => Unreachable::from_error(socket_error(error).unwrap_or(error)),
    }
}

/// The I/O error that a client's error comes from, if there is one. The layers of the client in between do not help in
/// a message.
fn socket_error(error: &kube::Error) -> Option<&(dyn Error + 'static)> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

fn not_ready(node: &Node) -> Option<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            let reason = [&ready.reason, &ready.message].into_iter().flatten().cloned().collect::<Vec<_>>();
            Some(format!("the node is not Ready: {}", reason.join(": ")))
        }
        None => Some("the node has no Ready condition".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// An API server with a fixed response for each path. It counts the connections.
    struct Server {
        api: KubeApiEndpoint,
        connections: Arc<AtomicUsize>,
    }

    async fn answer(stream: TcpStream, answers: Arc<Vec<(&'static str, u16, Value)>>) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut request = String::new();
            if stream.read_line(&mut request).await? == 0 {
                return Ok(());
            }
            let mut header = String::new();
            while stream.read_line(&mut header).await? > 2 {
                header.clear();
            }
            let path = request.split(' ').nth(1).unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            let known = answers.iter().find(|(known, _, _)| *known == path);
            let missing =
                (404, json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "none" }));
            let (code, body) = known.map_or(missing, |(_, code, body)| (*code, body.clone()));
            let body = body.to_string();
            let answer = format!(
                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await?;
        }
    }

    async fn server(answers: Vec<(&'static str, u16, Value)>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let answers = Arc::new(answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(stream, Arc::clone(&answers)));
            }
        });
        let config = Config::new(url.parse().expect("a URL"));
        Server { api: KubeApiEndpoint::new(config, "node-1"), connections }
    }

    fn status(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" })
    }

    fn node(ready: &str) -> Value {
        let condition =
            json!({ "type": "Ready", "status": ready, "reason": "Kubelet", "message": "it says" });
        json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [condition] } })
    }

    const NODE: &str = "/api/v1/nodes/node-1";
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1";

    #[tokio::test]
    async fn every_call_opens_a_connection_of_its_own() {
        let version = json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        let server = server(vec![("/version", 200, version)]).await;
        for calls in 1..=3 {
            assert_eq!(server.api.reach().await, Ok(()));
            assert_eq!(server.connections.load(Ordering::SeqCst), calls);
        }
        assert!(server.api.address().starts_with("http://127.0.0.1:"));
    }

    #[tokio::test]
    async fn an_api_server_that_refuses_has_been_reached_and_one_that_is_broken_has_not() {
        for (code, reached) in [(401, true), (403, true), (500, false), (503, false)] {
            let server = server(vec![("/version", code, status(code, "Some"))]).await;
            assert_eq!(server.api.reach().await.is_ok(), reached, "{code}");
        }
        let closed =
            KubeApiEndpoint::new(Config::new("http://127.0.0.1:1".parse().expect("a URL")), "node-1");
        let unreached = closed.reach().await.expect_err("no server listens");
        assert_eq!(unreached, Unreachable::because("connection refused"));
    }

    #[tokio::test]
    async fn a_node_is_what_its_condition_and_its_lease_say() {
        let lease = json!({
            "metadata": { "name": "node-1" }, "spec": { "renewTime": "2026-01-01T00:00:10.000000Z" },
        });
        let renewed = "2026-01-01T00:00:10Z".parse().ok();
        let why = Some("the node is not Ready: Kubelet: it says".to_owned());
        for (answers, expected) in [
            (
                vec![(NODE, 200, node("True")), (LEASE, 200, lease.clone())],
                Ok(NodeReadiness { not_ready: None, renewed }),
            ),
            (
                vec![(NODE, 200, node("Unknown")), (LEASE, 200, lease)],
                Ok(NodeReadiness { not_ready: why, renewed }),
            ),
            (vec![(NODE, 200, node("True"))], Ok(NodeReadiness { not_ready: None, renewed: None })),
            (
                vec![(NODE, 200, node("True")), (LEASE, 403, status(403, "Forbidden"))],
                Ok(NodeReadiness { not_ready: None, renewed: None }),
            ),
            (
                vec![(NODE, 403, status(403, "Forbidden"))],
                Err(Unreachable::because("HTTP 403 (Forbidden): no")),
            ),
        ] {
            let server = server(answers.clone()).await;
            assert_eq!(server.api.node().await, expected, "{answers:?}");
        }
        let missing = Some("the node has no Ready condition".to_owned());
        assert_eq!(not_ready(&Node::default()), missing);
    }
}
