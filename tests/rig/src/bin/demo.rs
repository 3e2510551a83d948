//! `make demo`: a machine of its own gets its network by policies, and is put back when one would cut it off.
//!
//! Shown are the commands as a user would type them, and what they answer. `demo [PROGRAM]` shows another knmstate than
//! the one that was built beside it.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rig::{
    Lab, NmNode, Primary,
    machine::rig_file,
    process::{Invocation, Process},
    wait,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

const LIMIT: Duration = Duration::from_mins(1);
const REPORT: &str = "/run/knmstate/nns-node1.yaml";
const NEW_ADDRESS: &str = "10.97.0.1";

#[tokio::main]
async fn main() -> ExitCode {
    // Whichever branch ends first, everything that `show` holds is gone before this function ends.
    let result = tokio::select! {
        result = show() => result,
        () = asked_to_end() => {
            eprintln!("\ninterrupted: everything that was started is gone");
            return ExitCode::from(130);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that went away, as `head` does, has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn asked_to_end() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let Ok([mut interrupt, mut terminate, mut hangup]) =
        <[_; 3]>::try_from(kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect::<Vec<_>>())
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.into_iter().any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

async fn show() -> Result<()> {
    let began = Instant::now();
    let screen = Screen { is_terminal: io::stdout().is_terminal() };
    print("A machine of its own: NetworkManager, three network cards, and a network with")?;
    print("gateway, DHCP and DNS. All of it lives in namespaces and is gone at the end;")?;
    print("the network of this computer is not touched.")?;
    print("")?;
    let shell = screen.during(Shell::start(screen)).await?;

    screen.title("The machine as it is")?;
    for command in LOOK {
        shell.shows(command).await?;
    }
    let before = shell.look().await?;

    screen.title("What its network is to be")?;
    shell.shows("cat examples/quickstart/10-storage-bridge.yaml").await?;
    shell.shows("cat examples/quickstart/20-search-domain.yaml").await?;

    screen.title("It is made so, or not at all")?;
    shell.shows("knmstate standalone --once --policies examples/quickstart").await?;
    screen.good("What is different now:")?;
    let after = shell.look().await?;
    ensure!(after != before, "nothing has changed");
    shell.difference(&before, &after).await?;

    screen.title("Said again, there is nothing to do")?;
    shell.shows("knmstate standalone --once --policies examples/quickstart").await?;

    screen.title("A policy that would cut the machine off")?;
    shell.shows("cat examples/rolled-back/wrong-card.yaml").await?;
    shell.node.end_checks_for_duplicates().await?;
    let untouched = shell.node.snapshot().await?;
    shell.fails("knmstate standalone --once --policies examples/rolled-back").await?;
    shell.node.is_again(&untouched, Duration::from_secs(10)).await?;
    ensure!(shell.look().await? == after, "the machine is not as before");
    screen.good("Addresses, routes, rules and name servers: as they were before.")?;
    print("")?;
    shell.shows("ping -c 1 -W 2 10.99.0.254 | head -n 2").await?;

    screen.title("As a service, it also tells what others do to the network")?;
    let service = shell.service().await?;
    let took = shell.changes_are_reported().await?;
    let seconds = took.as_secs_f64();
    screen.good(&format!("It was in the report {seconds:.2} s after the command was given."))?;
    print("")?;
    service.terminate(LIMIT).await?;

    drop(shell);
    screen.title(&format!("Done in {} s, and gone", began.elapsed().as_secs()))?;
    print("Next: README.md (use it on a machine of yours), examples/README.md,")?;
    print("      make cluster (Kubernetes, to play with), make test.")
}

/// What is looked at, as a user would look.
const LOOK: [&str; 3] = ["ip -brief address", "ip route", "cat /etc/resolv.conf"];

/// A machine, and a user in front of it.
struct Shell {
    screen: Screen,
    lab: Lab,
    node: NmNode,
    path: String,
}

impl Shell {
    async fn start(screen: Screen) -> Result<Self> {
        let program = program()?;
        let folder = program.parent().context("knmstate is in no folder")?.display().to_string();
        let lab = Lab::new().await?;
        lab.dns().on().await?;
        lab.dhcp().on().await?;
        let node = lab.nm_node("node1").primary(Primary::Dhcp).start().await?;
        // One protocol is enough for a first look.
        node.exec(["nmcli", "connection", "modify", "eth0", "ipv6.method", "link-local"]).await?.success()?;
        node.come_to_rest().await?;
        Ok(Self { screen, lab, node, path: format!("PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin") })
    }

    /// A command line in the machine, in the folder of this project.
    fn command(&self, line: &str) -> Invocation {
        let here = rig_file("../..").display().to_string();
        // Standard output and standard error in the order in which they come.
        let both = format!("exec 2>&1; {line}");
        self.node.enter(Invocation::new(["env", "-C", &here, &self.path, "bash", "-c", &both]))
    }

    async fn shows(&self, command: &str) -> Result<()> {
        let code = self.run(command).await?;
        ensure!(code == Some(0), "this was to succeed");
        Ok(())
    }

    /// Shows a command that does not succeed.
    async fn fails(&self, command: &str) -> Result<()> {
        let code = self.run(command).await?;
        ensure!(code == Some(1), "this was to fail");
        self.screen.typed("echo $?")?;
        print("1")?;
        print("")
    }

    async fn run(&self, command: &str) -> Result<Option<i32>> {
        self.screen.typed(command)?;
        let output = self.screen.during(self.command(command).run(LIMIT)).await?;
        output.stdout().lines().try_for_each(print)?;
        print("")?;
        Ok(output.status.code())
    }

    /// The network as the user sees it.
    async fn look(&self) -> Result<String> {
        self.command(&LOOK.join("; ")).run(LIMIT).await?.success()
    }

    /// Shows what two looks differ in, in the midst of what they have in common.
    async fn difference(&self, before: &str, after: &str) -> Result<()> {
        let [old, new] = [("before", before), ("after", after)].map(|(name, text)| {
            let path = self.lab.folder().join(name);
            std::fs::write(&path, text).map(|()| path.display().to_string())
        });
        let output = Invocation::new(["diff", "--unified=100", &old?, &new?]).run(LIMIT).await?;
        // The first three lines name the files and the range.
        output.stdout().lines().skip(3).try_for_each(|line| self.screen.changed(line))?;
        print("")
    }

    /// The program as a service, when it has told of the machine for the first time.
    async fn service(&self) -> Result<Process> {
        let command =
            "knmstate standalone --policies examples/quickstart \\\n           --output /run/knmstate";
        self.screen.typed(&format!("{command} &"))?;
        let service = self
            .command(&format!("exec {command}"))
            .start("knmstate", &self.lab.folder().join("service.log"))?;
        let told = wait::until(LIMIT, "the first report", async || {
            self.report()?;
            Ok(())
        });
        self.screen.during(told).await.with_context(|| service.log_tail(20))?;
        Ok(service)
    }

    fn report(&self) -> Result<String> {
        // The machine's /run is a folder of the lab.
        let inside = REPORT.trim_start_matches('/');
        Ok(std::fs::read_to_string(self.lab.folder().join("node1").join(inside))?)
    }

    /// Changes something by hand, and says how long it took until that was in the report.
    async fn changes_are_reported(&self) -> Result<Duration> {
        let command = format!("ip address add {NEW_ADDRESS}/24 dev eth2");
        self.screen.typed(&command)?;
        let began = Instant::now();
        self.command(&command).run(LIMIT).await?.success()?;
        let told = wait::until(LIMIT, "the new address to be reported", async || {
            ensure!(self.report()?.contains(NEW_ADDRESS), "it is not there");
            Ok(began.elapsed())
        });
        let took = self.screen.during(told).await?;
        self.shows(&format!("grep -B 7 -A 1 {NEW_ADDRESS} {REPORT}")).await?;
        Ok(took)
    }
}

/// The knmstate to show.
fn program() -> Result<PathBuf> {
    let program = match std::env::args_os().nth(1) {
        Some(given) => PathBuf::from(given),
        None => std::env::current_exe()?.with_file_name("knmstate"),
    };
    program.canonicalize().with_context(|| format!("there is no {}; use `make demo`", program.display()))
}

fn print(line: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{}", line.trim_end())?)
}

/// A terminal of 80 columns, or a file.
#[derive(Clone, Copy)]
struct Screen {
    is_terminal: bool,
}

impl Screen {
    fn title(self, text: &str) -> Result<()> {
        let rule = "─".repeat(70_usize.saturating_sub(text.chars().count()));
        self.painted("1", &format!("── {text} {rule}"))?;
        print("")
    }

    fn typed(self, command: &str) -> Result<()> {
        format!("node1# {command}").lines().try_for_each(|line| self.painted("1;36", line))
    }

    fn good(self, text: &str) -> Result<()> {
        self.painted("32", text)
    }

    fn changed(self, line: &str) -> Result<()> {
        match line.as_bytes().first() {
            Some(b'+') => self.painted("32", line),
            Some(b'-') => self.painted("31", line),
            _ => print(line),
        }
    }

    fn painted(self, colour: &str, line: &str) -> Result<()> {
        let line = line.trim_end();
        print(&if self.is_terminal { format!("\x1b[{colour}m{line}\x1b[0m") } else { line.to_owned() })
    }

    /// Waits for something, and shows on a terminal that it is still waited for.
    async fn during<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let began = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                result = &mut work => {
                    self.waiting("")?;
                    return result;
                }
                _ = ticks.tick() => self.waiting(&format!("… {:.1} s", began.elapsed().as_secs_f64()))?,
            }
        }
    }

    /// Replaces the line that the cursor is in.
    fn waiting(self, text: &str) -> Result<()> {
        if self.is_terminal {
            let mut out = io::stdout();
            write!(out, "\r\x1b[K{text}")?;
            out.flush()?;
        }
        Ok(())
    }
}
