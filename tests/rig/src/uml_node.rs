//! A node with a kernel of its own, User Mode Linux: for bonds, VLANs, VRFs and whatever else the machine's kernel may
//! lack, and for newer versions of NetworkManager.
//!
//! Its network cards are `eth1`, `eth2` and `eth3`, all on the back segment and untouched; `mgmt0`, on the front
//! segment, is the way in for the test and out to the API server, and NetworkManager leaves it alone.
//! The machine's files are in sight, read-only, below `/host`.

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

/// Five seconds on an idle machine; the tests that run beside may slow it down a lot.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// What the agent may need beyond the time of the command itself.
const AGENT_SLACK: Duration = Duration::from_secs(10);
/// How long a dead guest can go unnoticed.
const PULSE: Duration = Duration::from_millis(50);
const MEMORY: &str = "512M";
/// Of the package `user-mode-linux`.
const PACKAGED_KERNEL: &str = "linux.uml";

impl Lab {
    /// A node with a kernel of its own.
    pub fn uml_node(&self, name: &str) -> UmlNodeBuilder {
        UmlNodeBuilder {
            lab: self.clone(),
            name: name.to_owned(),
            userland: Userland::default(),
            open_vswitch: false,
            simulated_cards: 0,
        }
    }
}

#[derive(Debug)]
pub struct UmlNodeBuilder {
    lab: Lab,
    name: String,
    userland: Userland,
    open_vswitch: bool,
    simulated_cards: u8,
}

impl UmlNodeBuilder {
    /// Another Debian than the usual one, and so another version of NetworkManager.
    #[must_use]
    pub fn userland(mut self, userland: Userland) -> Self {
        self.userland = userland;
        self
    }

    /// With Open vSwitch running, on the Debian whose NetworkManager can drive it.
    #[must_use]
    pub fn open_vswitch(mut self) -> Self {
        self.open_vswitch = true;
        self.userland(Userland::Debian14)
    }

    /// With cards `sim0`, `sim1` … that can be split into VFs, on a kernel that has such. What they send is lost.
    #[must_use]
    pub fn simulated_cards(mut self, count: u8) -> Self {
        self.simulated_cards = count;
        self
    }

    /// Returns when NetworkManager has finished starting.
    pub async fn start(self) -> Result<UmlNode> {
        let agent = binaries::program("guest-agent").await?;
        let root = parts::uml_root(self.userland.suite()).await?;
        let (kernel, extras) = self.kernel_and_extras().await?;
        let number = self.lab.next_node()?;
        let folder = self.lab.folder().join(&self.name);
        std::fs::create_dir(&folder).with_context(|| format!("a node named {}", self.name))?;
        let console = folder.join("console.log");
        let run =
            Invocation::new([rig_file("uml/run"), folder.clone()].map(|path| path.display().to_string()))
                .args([kernel])
                .args(kernel_parameters(&self.name, number, &root, &agent, extras)?);
        let machine = Machine::start(&self.lab, &self.name, run, &[], &console).await?;
        machine.plug_in(&self.lab, number, 0, Segment::Front).await?;
        machine.plug_in(&self.lab, number, 1, Segment::Back).await?;
        std::fs::write(folder.join("cables-are-in"), "")?;
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

    /// The kernel, and what its first process is told beyond the usual.
    async fn kernel_and_extras(&self) -> Result<(String, Vec<String>)> {
        Ok(match (self.simulated_cards, self.open_vswitch) {
            (0, false) => (PACKAGED_KERNEL.to_owned(), Vec::new()),
            (0, true) => (PACKAGED_KERNEL.to_owned(), vec!["NODE_OPEN_VSWITCH=yes".to_owned()]),
            // A kernel with bonds built in makes one at once, if it is not told otherwise.
            (count, false) => (
                parts::uml_kernel().await?,
                vec![format!("NODE_SIMULATED_CARDS={count}"), "bonding.max_bonds=0".to_owned()],
            ),
            (_, true) => bail!("no kernel here has both simulated cards and Open vSwitch"),
        })
    }
}

/// What the guest's first process finds as its environment, after the words for the kernel itself.
fn kernel_parameters(
    name: &str,
    number: u8,
    root: &Path,
    agent: &Path,
    extras: Vec<String>,
) -> Result<Vec<String>> {
    let mut parameters = vec![
        format!("mem={MEMORY}"),
        format!("init={}", rig_file("uml/guest/init").display()),
        format!("NODE_NAME={name}"),
        format!("NODE_ROOT={}", root.display()),
        format!("NODE_AGENT={}", agent.display()),
        format!("NODE_ADDRESS={}", address(number)),
        format!("NODE_PORT={}", guest_agent::PORT),
        format!("NODE_GATEWAY={GATEWAY}"),
        // The first byte marks it as made up, the last but one is the node, the last the card.
        format!("NODE_MAC=02:99:00:00:{number:02x}"),
    ];
    parameters.extend(extras);
    for parameter in &parameters {
        ensure!(
            !parameter.contains([' ', '"', ',']),
            "'{parameter}' cannot be handed to a guest kernel: move it to a path without spaces, quotes and commas"
        );
    }
    Ok(parameters)
}

fn address(number: u8) -> String {
    format!("10.99.0.{number}")
}

/// A running node; gone when dropped.
#[derive(Debug)]
pub struct UmlNode {
    machine: Mutex<Machine>,
    number: u8,
    name: String,
    console: PathBuf,
    #[expect(dead_code, reason = "it is held, not looked at")]
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

    /// Runs a program that lies on the machine in the node, without copying it.
    pub async fn run_binary<S: Into<String>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
        stdin: impl Into<Vec<u8>>,
    ) -> Result<Output> {
        let program = Self::path_inside(program)?;
        self.exec_with(Invocation::new([program]).args(args).stdin(stdin), EXEC_LIMIT).await
    }

    /// Where the node sees a file of the machine.
    pub fn path_inside(path: &Path) -> Result<String> {
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        Ok(format!("/host{}", path.display()))
    }

    /// Runs a command in the node, which kills it when `limit` has passed or when this future is dropped.
    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        let (argv, env, stdin) = invocation.into_parts();
        let command = argv.join(" ");
        let request = Request { argv, env, stdin, limit };
        let ask = async {
            let reply = timeout(limit + AGENT_SLACK, self.ask(&request)).await;
            output_of(reply.context("the node does not answer")??, limit)
        };
        self.unless_dead(ask).await.with_context(|| format!("{}: {command}", self.name))
    }

    async fn ask(&self, request: &Request) -> Result<Reply> {
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
        self.unless_dead(ready).await.with_context(|| format!("start {}", self.name))
    }

    /// A guest that has died answers nobody: its end is noticed here, and not by the passing of a limit.
    async fn unless_dead<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let death = async {
            loop {
                let state = self.machine.lock().unwrap_or_else(PoisonError::into_inner).check_running();
                match state {
                    Ok(()) => sleep(PULSE).await,
                    Err(ended) => return ended,
                }
            }
        };
        tokio::select! {
            result = work => result,
            ended = death => Err(match panic_message(&self.console) {
                Some(panic) => ended.context(panic),
                None => ended,
            }),
        }
    }
}

/// The line that says that the kernel gave up and those that lead to it: at the end of the log a stack trace has
/// pushed them out of sight.
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

/// The switch's end of a node's network card.
#[derive(Debug)]
pub struct GuestNic<'a> {
    node: &'a UmlNode,
    port: String,
}

impl GuestNic<'_> {
    /// Pulls the cable: the node sees the carrier go.
    pub async fn pull(&self) -> Result<()> {
        self.link_set(&["down"]).await
    }

    /// Loses every packet in both directions, while the node still sees a carrier.
    pub async fn drop_packets(&self) -> Result<()> {
        self.link_set(&["nomaster"]).await
    }

    /// Undoes both.
    pub async fn restore(&self) -> Result<()> {
        self.link_set(&["master", "back", "up"]).await
    }

    async fn link_set(&self, words: &[&str]) -> Result<()> {
        let command = ["ip", "-n", "uplink", "link", "set", &self.port];
        self.node.exec(command.iter().chain(words).copied()).await?.success()?;
        Ok(())
    }
}
