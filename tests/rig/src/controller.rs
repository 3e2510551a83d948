//! `knmstate controller` as a process, with its rights in the cluster and no others.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use knmstate_operator::Settings;
use nix::sys::signal::Signal;

use crate::{
    ApiServer, BoundTo, Lab,
    process::{Invocation, LAB_VARIABLE, Process, write_private},
};

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How to start controllers of a cluster.
#[derive(Clone, Debug)]
pub struct ControllerSetup {
    lab: Lab,
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
}

impl ControllerSetup {
    pub async fn new(lab: &Lab, api: &ApiServer, program: PathBuf) -> Result<Self> {
        let settings = Settings::default();
        let folder = lab.folder().join("controllers");
        std::fs::create_dir_all(&folder)?;
        let token = api.token(&settings.namespace, &settings.controller_account(), BoundTo::Nothing).await?;
        write_private(&folder.join("kubeconfig"), &api.kubeconfig_with_token(&token))?;
        // The network of a lab has one address for all of them; whoever wants their doors says where.
        let arguments = ["--webhook-address=0", "--metrics-address=0"].map(str::to_owned).into();
        Ok(Self { lab: lab.clone(), program, folder, arguments })
    }

    /// Their lease lasts so long, in whole seconds, and not as long as usual: for tests that wait for its end often.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        self.arg(&format!("--lease-duration={}", lease.as_secs()))
    }

    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The last lines that each of them has logged, for a test that has failed.
    pub fn logs(&self, lines: usize) -> String {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let tail = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let all: Vec<&str> = text.lines().collect();
            let last = all[all.len().saturating_sub(lines)..].join("\n");
            format!("{}:\n{last}\n", path.display())
        };
        logs.map(tail).collect()
    }

    /// Starts one, in the network of the API server; its log goes on where that of an earlier one of the name ended.
    pub fn start(&self, name: &str) -> Result<Controller> {
        let invocation = Invocation::new([self.program.display().to_string(), "controller".to_owned()])
            .arg(format!("--kubeconfig={}", self.folder.join("kubeconfig").display()))
            .env("POD_NAMESPACE", &Settings::default().namespace)
            .env("POD_NAME", name)
            .args(self.arguments.iter().cloned())
            .env("RUST_BACKTRACE", "0")
            .env(LAB_VARIABLE, self.lab.id());
        let log = self.folder.join(format!("{name}.log"));
        let process = self.lab.network().enter(invocation).start(name, &log)?;
        Ok(Controller { process })
    }
}

/// A running controller; killed when dropped.
#[derive(Debug)]
pub struct Controller {
    process: Process,
}

impl Controller {
    /// Ends it as kubelet does.
    pub async fn stop(self) -> Result<()> {
        self.process.terminate(STOP_LIMIT).await
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }
}
