//! `knmstate handler` as a process: one works on each node, and it starts and stops cleanly.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{
    ApiServer, Lab, NmNode, binaries,
    process::{Invocation, LAB_VARIABLE, Process, write_private},
    wait,
};

const LIMIT: Duration = Duration::from_mins(1);
/// A waiting handler tries to take the lock every 5 s, and reads the network before it is ready.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(30);
/// A handler that is asked to stop does so within this time.
const STOP_LIMIT: Duration = Duration::from_secs(10);

struct HandlerProcess {
    process: Process,
    readiness_file: PathBuf,
    log: PathBuf,
}

impl HandlerProcess {
    async fn start(node: &NmNode, lab: &Lab, api: &ApiServer, name: &str) -> Result<Self> {
        let below = |what: &str| lab.directory().join(format!("{name}.{what}"));
        let (readiness_file, log) = (below("healthy"), below("log"));
        let kubeconfig = below("kubeconfig");
        write_private(&kubeconfig, &api.kubeconfig_for("admin", &["system:masters"])?)?;
        // Left by an earlier run that had no time to remove it.
        std::fs::write(&readiness_file, "")?;
        let call = Invocation::new([binaries::knmstate().await?.display().to_string()])
            .args(["handler", "--health-address=127.0.0.1:0", "--zap-time-encoding=iso8601"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--state-dir={}", below("state").display()))
            .arg(format!("--readiness-file={}", readiness_file.display()))
            .env("NODE_NAME", "node1")
            .env("NMSTATE_INSTANCE_NODE_LOCK_FILE", lab.directory().join("lock").display().to_string())
            .env(LAB_VARIABLE, lab.id());
        let process = node.enter(call).start(name, &log)?;
        Ok(Self { process, readiness_file, log })
    }

    async fn until_ready(&mut self, limit: Duration) -> Result<()> {
        wait::until(limit, "the handler to be ready", async || {
            self.process.check_running()?;
            // The file may still be that of the earlier run.
            let is_logged = std::fs::read_to_string(&self.log)?.contains("\"message\":\"ready\"");
            ensure!(is_logged && self.readiness_file.exists(), "{}", self.process.log_tail(5));
            Ok(())
        })
        .await
    }

    /// Waits for a line in its log that contains this text, and returns the first one.
    async fn logged(&self, text: &str) -> Result<serde_json::Value> {
        wait::until(LIMIT, "a line in the log", async || {
            let log = std::fs::read_to_string(&self.log)?;
            let line = log.lines().find(|line| line.contains(text)).with_context(|| log.clone())?;
            Ok(serde_json::from_str(line)?)
        })
        .await
    }

    async fn get(&self, node: &NmNode, path: &str) -> Result<String> {
        let serving = self.logged("answering /healthz").await?;
        let address = serving["address"].as_str().context("an address")?.replace(':', "/");
        let request = format!("GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n");
        let script = format!("exec 3<>/dev/tcp/{address}; printf '{request}' >&3; head -n 1 <&3");
        Ok(node.exec(["bash", "-c", &script]).await?.success()?.trim().to_owned())
    }
}

#[tokio::test]
async fn a_second_handler_waits_until_the_first_is_gone() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    let api = lab.api_server().start().await?;
    let mut first = HandlerProcess::start(&node, &lab, &api, "first").await?;
    first.until_ready(LIMIT).await?;
    assert_eq!(first.get(&node, "/healthz").await?, "HTTP/1.1 200 OK");
    assert_eq!(first.get(&node, "/readyz").await?, "HTTP/1.1 200 OK");
    first.logged("no longer used: --zap-time-encoding").await?;

    let mut second = HandlerProcess::start(&node, &lab, &api, "second").await?;
    second.logged("another handler is at work on this node").await?;
    ensure!(!second.readiness_file.exists(), "it is ready, but another handler works");
    assert_eq!(second.get(&node, "/healthz").await?, "HTTP/1.1 200 OK");
    assert_eq!(second.get(&node, "/readyz").await?, "HTTP/1.1 503 Service Unavailable");

    let readiness_file = first.readiness_file.clone();
    first.process.terminate(STOP_LIMIT).await?;
    ensure!(!readiness_file.exists(), "it has ended, but the readiness file is left");
    second.until_ready(TAKEOVER_LIMIT).await?;

    let third = HandlerProcess::start(&node, &lab, &api, "third").await?;
    third.logged("another handler is at work on this node").await?;
    third.process.terminate(STOP_LIMIT).await.context("while it waits")?;

    // The kernel frees the lock of one that is killed.
    drop(second);
    HandlerProcess::start(&node, &lab, &api, "fourth").await?.until_ready(LIMIT).await
}

#[tokio::test]
async fn a_handler_starts_and_stops_without_an_api_server() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    let mut api = lab.api_server().start().await?;
    api.crash();
    let mut handler = HandlerProcess::start(&node, &lab, &api, "alone").await?;
    handler.until_ready(LIMIT).await?;
    handler.logged("cannot watch the orders of this node").await?;
    assert_eq!(handler.get(&node, "/healthz").await?, "HTTP/1.1 200 OK");
    handler.process.terminate(STOP_LIMIT).await
}
