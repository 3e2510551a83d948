//! `knmstate handler` as a process: one at work per node, well-behaved at its beginning and its end.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{
    ApiServer, Lab, binaries,
    process::{Invocation, LAB_VARIABLE, Process},
    wait,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const LIMIT: Duration = Duration::from_secs(20);
/// A handler looks every 5 s whether its turn has come.
const TURN: Duration = Duration::from_secs(8);
/// A handler that is asked to stop does so within this time.
const STOP: Duration = Duration::from_secs(10);

struct Handler {
    process: Process,
    readiness_file: PathBuf,
    log: PathBuf,
}

impl Handler {
    async fn start(lab: &Lab, api: &ApiServer, name: &str) -> Result<Self> {
        let below = |what: &str| lab.folder().join(format!("{name}.{what}"));
        let (readiness_file, log) = (below("healthy"), below("log"));
        // Left by an earlier run that had no time to remove it.
        std::fs::write(&readiness_file, "")?;
        let process = Invocation::new([binaries::knmstate().await?.display().to_string()])
            .args(["handler", "--health-address=127.0.0.1:0", "--zap-time-encoding=iso8601"])
            .arg(format!("--kubeconfig={}", api.kubeconfig().display()))
            .arg(format!("--state-dir={}", below("state").display()))
            .arg(format!("--readiness-file={}", readiness_file.display()))
            .env("NODE_NAME", "node1")
            .env("NMSTATE_INSTANCE_NODE_LOCK_FILE", lab.folder().join("lock").display().to_string())
            .env(LAB_VARIABLE, lab.id())
            .start(name, &log)?;
        Ok(Self { process, readiness_file, log })
    }

    async fn until_ready(&mut self, limit: Duration) -> Result<()> {
        wait::until(limit, "the handler to be ready", async || {
            self.process.check_running()?;
            ensure!(self.readiness_file.exists(), "{}", self.process.log_tail(5));
            Ok(())
        })
        .await
    }

    /// The first line of its log that has these words.
    async fn logged(&self, words: &str) -> Result<serde_json::Value> {
        wait::until(LIMIT, "a line in the log", async || {
            let log = std::fs::read_to_string(&self.log)?;
            let line = log.lines().find(|line| line.contains(words)).with_context(|| log.clone())?;
            Ok(serde_json::from_str(line)?)
        })
        .await
    }

    async fn ask(&self, path: &str) -> Result<String> {
        let serving = self.logged("answering /healthz").await?;
        let mut stream = TcpStream::connect(serving["address"].as_str().context("an address")?).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

#[tokio::test]
async fn a_second_handler_waits_until_the_first_is_gone() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let mut first = Handler::start(&lab, &api, "first").await?;
    first.until_ready(LIMIT).await?;
    assert_eq!(first.ask("/healthz").await?, "HTTP/1.1 200 OK");
    assert_eq!(first.ask("/readyz").await?, "HTTP/1.1 200 OK");
    first.logged("no longer used: --zap-time-encoding").await?;

    let mut second = Handler::start(&lab, &api, "second").await?;
    second.logged("another handler is at work on this node").await?;
    ensure!(!second.readiness_file.exists(), "not its turn, and ready");
    assert_eq!(second.ask("/healthz").await?, "HTTP/1.1 200 OK");
    assert_eq!(second.ask("/readyz").await?, "HTTP/1.1 503 Service Unavailable");

    let readiness_file = first.readiness_file.clone();
    first.process.terminate(STOP).await?;
    ensure!(!readiness_file.exists(), "gone, and ready");
    second.until_ready(TURN).await?;

    let third = Handler::start(&lab, &api, "third").await?;
    third.logged("another handler is at work on this node").await?;
    third.process.terminate(STOP).await.context("one that waits can be ended, too")?;

    // The kernel frees the lock of one that is killed.
    drop(second);
    Handler::start(&lab, &api, "fourth").await?.until_ready(LIMIT).await
}

#[tokio::test]
async fn an_api_server_that_is_gone_keeps_no_handler_from_starting_and_ending() -> Result<()> {
    let lab = Lab::new().await?;
    let mut api = lab.api_server().start().await?;
    api.crash();
    let mut handler = Handler::start(&lab, &api, "alone").await?;
    handler.until_ready(LIMIT).await?;
    handler.logged("cannot watch the orders of this node").await?;
    assert_eq!(handler.ask("/healthz").await?, "HTTP/1.1 200 OK");
    handler.process.terminate(STOP).await
}
