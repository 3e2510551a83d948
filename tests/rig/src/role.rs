//! A role of `knmstate`, controller or operator, as a process in the network of the API server.

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

/// The settings of the replicas of a role.
#[derive(Clone, Debug)]
pub struct RoleSetup {
    lab: Lab,
    program: PathBuf,
    role: &'static str,
    directory: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl RoleSetup {
    /// Controllers, with the rights of the controller in the cluster.
    pub async fn controller(lab: &Lab, api: &ApiServer, program: PathBuf) -> Result<Self> {
        let settings = Settings::default();
        let token = api.token(&settings.namespace, &settings.controller_account(), BoundTo::Nothing).await?;
        let setup = Self::new(lab, program, "controller", &api.kubeconfig_with_token(&token))?;
        // All replicas have the same address, so they get no listeners by default.
        let setup = setup.arg("--webhook-address=0").arg("--metrics-address=0");
        Ok(setup.env("POD_NAMESPACE", &settings.namespace))
    }

    /// Any role, with this kubeconfig.
    pub fn new(lab: &Lab, program: PathBuf, role: &'static str, kubeconfig: &str) -> Result<Self> {
        let directory = lab.directory().join(role);
        std::fs::create_dir_all(&directory)?;
        write_private(&directory.join("kubeconfig"), kubeconfig)?;
        Ok(Self {
            lab: lab.clone(),
            program,
            role,
            directory,
            arguments: Vec::new(),
            environment: Vec::new(),
        })
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the duration of the leader's lease, in whole seconds: a short one for tests that wait until it expires.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        self.arg(&format!("--lease-duration={}", lease.as_secs()))
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The last lines of each replica's log, for messages of failed tests.
    pub fn logs(&self, lines: usize) -> String {
        let files =
            std::fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let tail = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let all: Vec<&str> = text.lines().collect();
            let last = all[all.len().saturating_sub(lines)..].join("\n");
            format!("{}:\n{last}\n", path.display())
        };
        logs.map(tail).collect()
    }

    /// Runs another command of the program to its end, with the same kubeconfig.
    pub async fn run(&self, command: &str) -> Result<Output> {
        self.lab.network().enter(self.invocation(command)).run(COMMAND_LIMIT).await
    }

    fn invocation(&self, command: &str) -> Invocation {
        let start = Invocation::new([self.program.display().to_string(), command.to_owned()])
            .arg(format!("--kubeconfig={}", self.directory.join("kubeconfig").display()))
            .env("RUST_BACKTRACE", "0")
            .env(LAB_VARIABLE, self.lab.id());
        self.environment.iter().fold(start, |invocation, (name, value)| invocation.env(name, value))
    }

    /// Starts a replica in the network of the API server. Replicas of the same name append to the same log.
    pub fn start(&self, name: &str) -> Result<RoleProcess> {
        let invocation =
            self.invocation(self.role).env("POD_NAME", name).args(self.arguments.iter().cloned());
        let log = self.directory.join(format!("{name}.log"));
        let process = self.lab.network().enter(invocation).start(name, &log)?;
        Ok(RoleProcess { process })
    }
}

/// A running replica. Dropping it kills the process.
#[derive(Debug)]
pub struct RoleProcess {
    process: Process,
}

impl RoleProcess {
    /// Ends the replica with SIGTERM, as kubelet does. Fails if it does not end in time.
    pub async fn stop(self) -> Result<()> {
        self.process.terminate(STOP_LIMIT).await
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Fails with the end of the log if the replica has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }
}
