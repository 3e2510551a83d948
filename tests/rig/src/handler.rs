//! `knmstate handler` on a node, with the rights of the handler in the cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{
    ApiServer, Lab, NmNode,
    process::{Invocation, LAB_VARIABLE, Process, write_private},
    shell::Shell,
    wait,
};

const READY_LIMIT: Duration = Duration::from_secs(30);
/// The log of a handler that [`HandlerSetup::start_inside`] has started, in the node.
pub const LOG_INSIDE: &str = "/run/handler.log";
/// A handler ends within this time after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(12);

impl ApiServer {
    /// Creates a Node object and sets it Ready, as no kubelet does that.
    pub async fn add_ready_node(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        let node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        nodes.create(&PostParams::default(), &node).await?;
        self.set_node_ready(name, true).await
    }

    /// Sets the condition Ready of a Node object.
    pub async fn set_node_ready(&self, name: &str, ready: bool) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        let status = if ready { "True" } else { "False" };
        let condition =
            json!({"type": "Ready", "status": status, "reason": "Rig", "message": "set by the test"});
        let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status(name, &PatchParams::default(), &status).await?;
        Ok(())
    }

    /// How many writes of handlers this API server has answered since it started, including those that changed nothing.
    /// Writes of orders do not count: handlers do not write them.
    pub async fn writes_of_handlers(&self) -> Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self.client().request_text(request).await?;
        Ok(writes_in(&metrics))
    }
}

fn writes_in(metrics: &str) -> u64 {
    let requests = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    let writes = requests.filter(|line| {
        let has = |label: &str| line.contains(label);
        let is_write =
            ["APPLY", "PATCH", "POST", "PUT", "DELETE"].iter().any(|verb| has(&format!("verb=\"{verb}\"")));
        let of_handlers = has("resource=\"nodenetworkstates\"")
            || (has("resource=\"nodenetworkconfigurationenactments\"") && has("subresource=\"status\""));
        is_write && of_handlers
    });
    writes.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The settings and the directory of the handler of one node. The handler can be started several times, and keeps its
/// files.
#[derive(Clone, Debug)]
pub struct HandlerSetup {
    lab: Lab,
    node: String,
    program: PathBuf,
    directory: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl HandlerSetup {
    /// For a node that the API server has, with the token of its handler.
    pub async fn new(lab: &Lab, api: &ApiServer, node: &str, program: PathBuf) -> Result<Self> {
        let token = api.handler_token(node).await?;
        Self::with_kubeconfig(lab, &api.kubeconfig_with_token(&token), node, program)
    }

    /// For a node with another kubeconfig.
    pub fn with_kubeconfig(lab: &Lab, kubeconfig: &str, node: &str, program: PathBuf) -> Result<Self> {
        let directory = lab.directory().join(format!("handler-of-{node}"));
        fs::create_dir(&directory).context("a node can have one handler")?;
        write_private(&directory.join("kubeconfig"), kubeconfig)?;
        Ok(Self {
            lab: lab.clone(),
            node: node.to_owned(),
            program,
            directory,
            arguments: Vec::new(),
            environment: Vec::new(),
        })
    }

    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The directory that the handler keeps over a restart.
    pub fn state_directory(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Starts the handler in a node of any kind. It ends with the node, and its log and its files are in the node.
    pub async fn start_inside(&self, node: &impl Shell) -> Result<()> {
        let environment: Vec<String> =
            self.environment.iter().map(|(key, value)| format!("{key}='{value}'")).collect();
        let script = format!(
            "NODE_NAME={} NMSTATE_INSTANCE_NODE_LOCK_FILE=/run/lock.handler RUST_BACKTRACE=0 {} \
             {} handler --kubeconfig={} --state-dir=/run/state {} >{LOG_INSIDE} 2>&1 &",
            self.node,
            environment.join(" "),
            node.path_in_node(&self.program)?,
            node.path_in_node(&self.directory.join("kubeconfig"))?,
            self.arguments.join(" "),
        );
        node.run_script(&script, READY_LIMIT).await?.success()?;
        Ok(())
    }

    /// Starts the handler in its node, and appends to its log.
    pub fn start(&self, node: &NmNode) -> Result<Handler> {
        let below = |name: &str| self.directory.join(name);
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let readiness_file = below("healthy");
        let _ = fs::remove_file(&readiness_file);
        let mut invocation = Invocation::new([self.program.display().to_string(), "handler".to_owned()])
            .arg(flag("kubeconfig", &below("kubeconfig")))
            .arg(flag("state-dir", &self.state_directory()))
            .arg(flag("readiness-file", &readiness_file))
            .args(self.arguments.iter().cloned())
            .env("NODE_NAME", &self.node)
            .env("NMSTATE_INSTANCE_NODE_LOCK_FILE", below("lock").display().to_string())
            .env("RUST_BACKTRACE", "0")
            .env(LAB_VARIABLE, self.lab.id());
        for (key, value) in &self.environment {
            invocation = invocation.env(key, value);
        }
        let process = node.enter(invocation).start("handler", &below("handler.log"))?;
        Ok(Handler { process, readiness_file })
    }
}

/// A running handler. Dropping it kills the process.
#[derive(Debug)]
pub struct Handler {
    process: Process,
    readiness_file: PathBuf,
}

impl Handler {
    /// Waits until the handler has read the network of its node for the first time.
    pub async fn until_ready(&mut self) -> Result<()> {
        wait::until(READY_LIMIT, "the handler to be ready", async || {
            self.process.check_running()?;
            ensure!(self.readiness_file.exists(), "{}", self.process.log_tail(5));
            Ok(())
        })
        .await
    }

    /// Ends the handler with SIGTERM, as kubelet does. Fails if it does not end in time.
    pub async fn stop(self) -> Result<()> {
        self.process.terminate(STOP_LIMIT).await
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// The pid of the handler in the machine's pid namespace.
    pub fn pid(&self) -> Result<u32> {
        self.process.command_pid()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_handlers_write_counts() {
        let line = |verb: &str, resource: &str, subresource: &str, count: u32| {
            format!(
                "apiserver_request_total{{code=\"200\",group=\"nmstate.io\",resource=\"{resource}\",\
                 subresource=\"{subresource}\",verb=\"{verb}\"}} {count}"
            )
        };
        let (order, state) = ("nodenetworkconfigurationenactments", "nodenetworkstates");
        let metrics = [
            line("APPLY", order, "status", 1),
            line("APPLY", order, "", 10),
            line("WATCH", state, "", 100),
            line("POST", state, "", 1000),
            line("APPLY", state, "status", 10000),
            "apiserver_request_slo_duration{verb=\"APPLY\"} 7".to_owned(),
        ];
        assert_eq!(writes_in(&metrics.join("\n")), 11001);
    }
}
