//! A node with its own kernel, User Mode Linux: for bonds, VLANs, VRFs and everything else that the host's kernel may
//! lack, and for newer versions of NetworkManager.
//!
//! Its NICs are `eth1`, `eth2` and `eth3`, all on the back segment and not configured; `mgmt0`, on the front segment,
//! connects it to the test and the API server, and NetworkManager does not manage it.
//! The host's files are visible, read-only, below `/host`.

use std::{
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use guest_agent::{End, Reply, Request};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{sleep, timeout},
};

use crate::{
    awake::Awake,
    binaries,
    lab::{Lab, Segment},
    machine::{EXEC_LIMIT, Machine, rig_file},
    parts,
    process::{Invocation, Output, tail},
    services::GATEWAY,
    userland::Userland,
    wait,
};

/// It takes a few seconds on an idle host; tests that run in parallel may slow it down a lot.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Time that the agent may need beyond that of the command itself.
const AGENT_SLACK: Duration = Duration::from_secs(10);
/// How often a wait checks that the guest still runs.
const ALIVE_INTERVAL: Duration = Duration::from_millis(50);
const MEMORY: &str = "512M";

impl Lab {
    /// A node with its own kernel, not started yet.
    pub fn uml_node(&self, name: &str) -> UmlNodeBuilder {
        UmlNodeBuilder {
            lab: self.clone(),
            name: name.to_owned(),
            userland: Userland::default(),
            open_vswitch: false,
            simulated_nics: 0,
        }
    }
}

/// The settings of a full-kernel node that is not started yet.
#[derive(Debug)]
pub struct UmlNodeBuilder {
    lab: Lab,
    name: String,
    userland: Userland,
    open_vswitch: bool,
    simulated_nics: u8,
}

impl UmlNodeBuilder {
    /// The release of Debian, which decides the version of NetworkManager; Debian 13 by default.
    #[must_use]
    pub fn userland(mut self, userland: Userland) -> Self {
        self.userland = userland;
        self
    }

    /// Starts Open vSwitch, and uses the release of Debian whose NetworkManager can configure it.
    #[must_use]
    pub fn open_vswitch(mut self) -> Self {
        self.open_vswitch = true;
        self.userland(Userland::Debian14)
    }

    /// Adds NICs `sim0`, `sim1` … that can be split into VFs. Every packet that they send is lost.
    #[must_use]
    pub fn simulated_nics(mut self, count: u8) -> Self {
        self.simulated_nics = count;
        self
    }

    /// Returns when NetworkManager has finished starting. Fails when a part of the rig is missing, the guest ends, or
    /// it is not ready in time.
    pub async fn start(self) -> Result<UmlNode> {
        let agent = binaries::program("guest-agent").await?;
        let root = parts::uml_root(self.userland.suite()).await?;
        let kernel = parts::uml_kernel().await?;
        let number = self.lab.next_node()?;
        let directory = self.lab.directory().join(&self.name);
        std::fs::create_dir(&directory).with_context(|| format!("a node named {}", self.name))?;
        let console = directory.join("console.log");
        let run =
            Invocation::new([rig_file("uml/run"), directory.clone()].map(|path| path.display().to_string()))
                .args([kernel])
                .args(self.guest_parameters(number, &root, &agent)?);
        let machine = Machine::start(&self.lab, &self.name, run, &[], &console).await?;
        machine.plug_in(&self.lab, number, 0, Segment::Front).await?;
        machine.plug_in(&self.lab, number, 1, Segment::Back).await?;
        std::fs::write(directory.join("cables-are-in"), "")?;
        let node = UmlNode {
            machine: Mutex::new(machine),
            number,
            name: self.name,
            console,
            awake: Awake::keep()?,
            lab: self.lab,
        };
        node.wait_until_ready().await?;
        Ok(node)
    }

    /// Kernel parameters of this node. The guest's first process has those that start with `NODE_` as environment
    /// variables.
    fn guest_parameters(&self, number: u8, root: &Path, agent: &Path) -> Result<Vec<String>> {
        let mut parameters = vec![
            format!("mem={MEMORY}"),
            format!("init={}", rig_file("uml/guest/init").display()),
            format!("NODE_NAME={}", self.name),
            format!("NODE_ROOT={}", root.display()),
            format!("NODE_AGENT={}", agent.display()),
            format!("NODE_ADDRESS={}", address(number)),
            format!("NODE_PORT={}", guest_agent::PORT),
            format!("NODE_GATEWAY={GATEWAY}"),
            // The first byte marks it as locally administered, the last but one is the node, the last the NIC.
            format!("NODE_MAC=02:99:00:00:{number:02x}"),
        ];
        if self.open_vswitch {
            parameters.push("NODE_OPEN_VSWITCH=yes".to_owned());
        }
        if self.simulated_nics > 0 {
            parameters.push(format!("NODE_SIMULATED_NICS={}", self.simulated_nics));
        }
        for parameter in &parameters {
            ensure!(
                !parameter.contains([' ', '"', ',']),
                "'{parameter}' cannot be passed to a guest kernel: move it to a path without spaces, quotes and commas"
            );
        }
        Ok(parameters)
    }
}

fn address(number: u8) -> String {
    format!("10.99.0.{number}")
}

/// A running full-kernel node. Dropping it ends it.
#[derive(Debug)]
pub struct UmlNode {
    machine: Mutex<Machine>,
    number: u8,
    name: String,
    console: PathBuf,
    #[expect(dead_code, reason = "held for its effect")]
    awake: Awake,
    lab: Lab,
}

impl UmlNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the front segment.
    pub fn address(&self) -> String {
        address(self.number)
    }

    /// The cable of `eth<index>`.
    pub fn nic(&self, index: usize) -> GuestNic<'_> {
        GuestNic { node: self, port: format!("eth{index}-cable") }
    }

    /// Runs a command in the node.
    pub async fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.exec_with(Invocation::new(argv), EXEC_LIMIT).await
    }

    /// Runs a program of the host in the node, without copying it.
    pub async fn run_binary<S: Into<String>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
        stdin: impl Into<Vec<u8>>,
    ) -> Result<Output> {
        let program = Self::path_inside(program)?;
        self.exec_with(Invocation::new([program]).args(args).stdin(stdin), EXEC_LIMIT).await
    }

    /// The path in the node of a file of the host. Fails when the file does not exist.
    pub fn path_inside(path: &Path) -> Result<String> {
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        Ok(format!("/host{}", path.display()))
    }

    /// Runs a command in the node, which kills it when `limit` has passed or when this future is dropped.
    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        let (argv, env, stdin) = invocation.into_parts();
        let command = argv.join(" ");
        let request = Request { argv, env, stdin, limit };
        let exchange = async {
            let reply = timeout(limit + AGENT_SLACK, self.send(&request)).await;
            output_of(reply.context("the node does not answer")??, limit)
        };
        self.unless_ended(exchange).await.with_context(|| format!("{}: {command}", self.name))
    }

    async fn send(&self, request: &Request) -> Result<Reply> {
        let agent = SocketAddr::new(self.address().parse()?, guest_agent::PORT);
        let mut connection = self.lab.network().connect(agent).await?;
        let mut wire = Vec::new();
        request.write(&mut wire)?;
        connection.write_all(&wire).await?;
        wire.clear();
        connection.read_to_end(&mut wire).await?;
        Reply::read(&mut wire.as_slice()).context("the agent's reply")
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let ready = wait::until(READY_LIMIT, "the node to be ready", async || {
            let console = std::fs::read(&self.console)?;
            ensure!(String::from_utf8_lossy(&console).contains("guest: ready"), tail(&self.console, 20));
            Ok(())
        });
        self.unless_ended(ready).await.with_context(|| format!("start {}", self.name))
    }

    /// Fails as soon as the guest has ended, without waiting for a time limit.
    async fn unless_ended<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let end = async {
            loop {
                let state = self.machine.lock().unwrap_or_else(PoisonError::into_inner).check_running();
                match state {
                    Ok(()) => sleep(ALIVE_INTERVAL).await,
                    Err(ended) => return ended,
                }
            }
        };
        tokio::select! {
            result = work => result,
            ended = end => Err(match panic_message(&self.console) {
                Some(panic) => ended.context(panic),
                None => ended,
            }),
        }
    }
}

/// The line of the log that reports a kernel panic and the five before it. The end of the log is a stack trace.
fn panic_message(console: &Path) -> Option<String> {
    let console = std::fs::read(console).ok()?;
    let console = String::from_utf8_lossy(&console);
    let lines: Vec<&str> = console.lines().collect();
    let panic = lines.iter().position(|line| line.contains("Kernel panic"))?;
    Some(lines[panic.saturating_sub(5)..=panic].join("\n"))
}

fn output_of(reply: Reply, limit: Duration) -> Result<Output> {
    let status = match reply.end {
        End::Exited(status) => ExitStatus::from_raw(status),
        End::NotStarted(why) => bail!("not started: {why}"),
        End::TimedOut => bail!(
            "killed after {limit:?}; until then it printed: {}{}",
            String::from_utf8_lossy(&reply.stdout),
            String::from_utf8_lossy(&reply.stderr)
        ),
    };
    Ok(Output { status, stdout: reply.stdout, stderr: reply.stderr })
}

/// The switch's end of a node's NIC.
#[derive(Debug)]
pub struct GuestNic<'a> {
    node: &'a UmlNode,
    port: String,
}

impl GuestNic<'_> {
    /// Pulls the cable: the interface loses its carrier.
    pub async fn pull(&self) -> Result<()> {
        self.link_set(&["down"]).await
    }

    /// Drops every packet in both directions, while the interface keeps its carrier.
    pub async fn drop_packets(&self) -> Result<()> {
        self.link_set(&["nomaster"]).await
    }

    /// Reverts both.
    pub async fn restore(&self) -> Result<()> {
        self.link_set(&["master", "back", "up"]).await
    }

    async fn link_set(&self, words: &[&str]) -> Result<()> {
        let command = ["ip", "-n", "uplink", "link", "set", &self.port];
        self.node.exec(command.iter().chain(words).copied()).await?.success()?;
        Ok(())
    }
}
