//! A role of `knmstate` as a process in the network of the API server: `controller`, `operator`.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use knmstate_operator::Settings;
use nix::sys::signal::Signal;

use crate::{
    ApiServer, BoundTo, Lab,
    process::{Invocation, LAB_VARIABLE, Output, Process, write_private},
};

const STOP_LIMIT: Duration = Duration::from_secs(10);
const COMMAND_LIMIT: Duration = Duration::from_mins(3);

/// How to start replicas of a role.
#[derive(Clone, Debug)]
pub struct RoleSetup {
    lab: Lab,
    program: PathBuf,
    role: &'static str,
    folder: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl RoleSetup {
    /// Controllers, with their rights in the cluster and no others.
    pub async fn controller(lab: &Lab, api: &ApiServer, program: PathBuf) -> Result<Self> {
        let settings = Settings::default();
        let token = api.token(&settings.namespace, &settings.controller_account(), BoundTo::Nothing).await?;
        let setup = Self::new(lab, program, "controller", &api.kubeconfig_with_token(&token))?;
        // The network of a lab has one address for all of them; whoever wants their doors says where.
        let doors = setup.arg("--webhook-address=0").arg("--metrics-address=0");
        Ok(doors.env("POD_NAMESPACE", &settings.namespace))
    }

    /// Any role, by a kubeconfig.
    pub fn new(lab: &Lab, program: PathBuf, role: &'static str, kubeconfig: &str) -> Result<Self> {
        let folder = lab.folder().join(role);
        std::fs::create_dir_all(&folder)?;
        write_private(&folder.join("kubeconfig"), kubeconfig)?;
        Ok(Self { lab: lab.clone(), program, role, folder, arguments: Vec::new(), environment: Vec::new() })
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
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

    /// Runs another command of the program to its end, with the same way to the cluster.
    pub async fn run(&self, command: &str) -> Result<Output> {
        self.lab.network().enter(self.invocation(command)).run(COMMAND_LIMIT).await
    }

    fn invocation(&self, command: &str) -> Invocation {
        let start = Invocation::new([self.program.display().to_string(), command.to_owned()])
            .arg(format!("--kubeconfig={}", self.folder.join("kubeconfig").display()))
            .env("RUST_BACKTRACE", "0")
            .env(LAB_VARIABLE, self.lab.id());
        self.environment.iter().fold(start, |invocation, (name, value)| invocation.env(name, value))
    }

    /// Starts one, in the network of the API server; its log goes on where that of an earlier one of the name ended.
    pub fn start(&self, name: &str) -> Result<RoleProcess> {
        let invocation =
            self.invocation(self.role).env("POD_NAME", name).args(self.arguments.iter().cloned());
        let log = self.folder.join(format!("{name}.log"));
        let process = self.lab.network().enter(invocation).start(name, &log)?;
        Ok(RoleProcess { process })
    }
}

/// A running replica; killed when dropped.
#[derive(Debug)]
pub struct RoleProcess {
    process: Process,
}

impl RoleProcess {
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
