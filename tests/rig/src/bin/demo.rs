//! `make demo`: policies configure the network of a machine, and one that would cut it off is rolled back.
//!
//! The machine is a node of a lab. The demo shows commands as a user would type them, and their output. `demo
//! [PROGRAM]` runs another knmstate than the one beside it.

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
    // When a branch ends, `show` is dropped, which removes everything that it has started.
    let result = tokio::select! {
        result = show() => result,
        () = end_signal() => {
            eprintln!("\ninterrupted: everything that was started has been removed");
            return ExitCode::from(130);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // No error: the reader of the output has ended, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn end_signal() {
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
    print("The demo runs on a machine of its own, with NetworkManager, three NICs, and a")?;
    print("network with gateway, DHCP and DNS. It is made of namespaces and is removed at")?;
    print("the end. The network of this computer does not change.")?;
    print("")?;
    let shell = screen.wait_for(Shell::start(screen)).await?;

    screen.title("The network before")?;
    for command in SHOW_NETWORK {
        shell.show(command).await?;
    }
    let before = shell.network().await?;

    screen.title("Two policies")?;
    shell.show("cat examples/quickstart/10-storage-bridge.yaml").await?;
    shell.show("cat examples/quickstart/20-search-domain.yaml").await?;

    screen.title("Apply them: all of it, or nothing")?;
    shell.show("knmstate standalone --once --policies examples/quickstart").await?;
    screen.result("The differences:")?;
    let after = shell.network().await?;
    ensure!(after != before, "nothing has changed");
    shell.difference(&before, &after).await?;

    screen.title("Apply them again: nothing to do")?;
    shell.show("knmstate standalone --once --policies examples/quickstart").await?;

    screen.title("A policy that would cut the machine off")?;
    shell.show("cat examples/rolled-back/wrong-nic.yaml").await?;
    shell.node.wait_for_duplicate_address_detection().await?;
    let untouched = shell.node.snapshot().await?;
    shell.show_failure("knmstate standalone --once --policies examples/rolled-back").await?;
    shell.node.wait_until_restored(&untouched, Duration::from_secs(10)).await?;
    ensure!(shell.network().await? == after, "the network is not as before");
    screen.result("Addresses, routes, rules and name servers are as they were before.")?;
    print("")?;
    shell.show("ping -c 1 -W 2 10.99.0.254 | head -n 2").await?;

    screen.title("As a service, it also reports changes by others")?;
    let service = shell.service().await?;
    let took = shell.show_reported_change().await?;
    let seconds = took.as_secs_f64();
    screen.result(&format!("The change was in the report after {seconds:.2} s."))?;
    print("")?;
    service.terminate(LIMIT).await?;

    drop(shell);
    screen.title(&format!("Done in {} s, everything removed", began.elapsed().as_secs()))?;
    print("Next: README.md (install it on your own machines), examples/README.md,")?;
    print("      make cluster (a Kubernetes cluster to experiment with), make test.")
}

/// The commands that show the network.
const SHOW_NETWORK: [&str; 3] = ["ip -brief address", "ip route", "cat /etc/resolv.conf"];

/// The machine of the demo, and a user's shell on it.
struct Shell {
    screen: Screen,
    lab: Lab,
    node: NmNode,
    path: String,
}

impl Shell {
    async fn start(screen: Screen) -> Result<Self> {
        let program = program()?;
        let directory =
            program.parent().context("the path of knmstate has no directory")?.display().to_string();
        let lab = Lab::new().await?;
        lab.dns().on().await?;
        lab.dhcp().on().await?;
        let node = lab.nm_node("node1").primary(Primary::Dhcp).start().await?;
        // Without IPv6 addresses, to keep the output short.
        node.exec(["nmcli", "connection", "modify", "eth0", "ipv6.method", "link-local"]).await?.success()?;
        node.settle().await?;
        Ok(Self { screen, lab, node, path: format!("PATH={directory}:/usr/sbin:/usr/bin:/sbin:/bin") })
    }

    /// A command line in the machine, in the directory of this project.
    fn command(&self, line: &str) -> Invocation {
        let here = rig_file("../..").display().to_string();
        // One pipe for standard output and standard error keeps their order.
        let both = format!("exec 2>&1; {line}");
        self.node.enter(Invocation::new(["env", "-C", &here, &self.path, "bash", "-c", &both]))
    }

    /// Shows a command that succeeds, and its output.
    async fn show(&self, command: &str) -> Result<()> {
        let code = self.run(command).await?;
        ensure!(code == Some(0), "the command has failed");
        Ok(())
    }

    /// Shows a command that fails, its output and its exit code.
    async fn show_failure(&self, command: &str) -> Result<()> {
        let code = self.run(command).await?;
        ensure!(code == Some(1), "the command has not failed");
        self.screen.prompt("echo $?")?;
        print("1")?;
        print("")
    }

    async fn run(&self, command: &str) -> Result<Option<i32>> {
        self.screen.prompt(command)?;
        let output = self.screen.wait_for(self.command(command).run(LIMIT)).await?;
        output.stdout().lines().try_for_each(print)?;
        print("")?;
        Ok(output.status.code())
    }

    /// The output of the commands that show the network.
    async fn network(&self) -> Result<String> {
        self.command(&SHOW_NETWORK.join("; ")).run(LIMIT).await?.success()
    }

    /// Shows the network, with the lines that differ marked.
    async fn difference(&self, before: &str, after: &str) -> Result<()> {
        let [old, new] = [("before", before), ("after", after)].map(|(name, text)| {
            let path = self.lab.directory().join(name);
            std::fs::write(&path, text).map(|()| path.display().to_string())
        });
        let output = Invocation::new(["diff", "--unified=100", &old?, &new?]).run(LIMIT).await?;
        // The first three lines name the files and the range.
        output.stdout().lines().skip(3).try_for_each(|line| self.screen.diff_line(line))?;
        print("")
    }

    /// Starts knmstate as a service, and waits for its first report.
    async fn service(&self) -> Result<Process> {
        let command =
            "knmstate standalone --policies examples/quickstart \\\n           --output /run/knmstate";
        self.screen.prompt(&format!("{command} &"))?;
        let service = self
            .command(&format!("exec {command}"))
            .start("knmstate", &self.lab.directory().join("service.log"))?;
        let reported = wait::until(LIMIT, "the first report", async || {
            self.report()?;
            Ok(())
        });
        self.screen.wait_for(reported).await.with_context(|| service.log_tail(20))?;
        Ok(service)
    }

    fn report(&self) -> Result<String> {
        // The machine's /run is a directory of the lab.
        let inside = REPORT.trim_start_matches('/');
        Ok(std::fs::read_to_string(self.lab.directory().join("node1").join(inside))?)
    }

    /// Adds an address by hand, and returns the time until the report has it.
    async fn show_reported_change(&self) -> Result<Duration> {
        let command = format!("ip address add {NEW_ADDRESS}/24 dev eth2");
        self.screen.prompt(&command)?;
        let began = Instant::now();
        self.command(&command).run(LIMIT).await?.success()?;
        let reported = wait::until(LIMIT, "the new address to be reported", async || {
            ensure!(self.report()?.contains(NEW_ADDRESS), "the report does not have it");
            Ok(began.elapsed())
        });
        let took = self.screen.wait_for(reported).await?;
        self.show(&format!("grep -B 7 -A 1 {NEW_ADDRESS} {REPORT}")).await?;
        Ok(took)
    }
}

/// The path of knmstate.
fn program() -> Result<PathBuf> {
    let program = match std::env::args_os().nth(1) {
        Some(given) => PathBuf::from(given),
        None => std::env::current_exe()?.with_file_name("knmstate"),
    };
    program.canonicalize().with_context(|| format!("find {}; use `make demo`", program.display()))
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
        self.colored("1", &format!("── {text} {rule}"))?;
        print("")
    }

    fn prompt(self, command: &str) -> Result<()> {
        format!("node1# {command}").lines().try_for_each(|line| self.colored("1;36", line))
    }

    fn result(self, text: &str) -> Result<()> {
        self.colored("32", text)
    }

    fn diff_line(self, line: &str) -> Result<()> {
        match line.as_bytes().first() {
            Some(b'+') => self.colored("32", line),
            Some(b'-') => self.colored("31", line),
            _ => print(line),
        }
    }

    fn colored(self, color: &str, line: &str) -> Result<()> {
        let line = line.trim_end();
        print(&if self.is_terminal { format!("\x1b[{color}m{line}\x1b[0m") } else { line.to_owned() })
    }

    /// Waits for `work`, and shows the elapsed time on a terminal.
    async fn wait_for<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let began = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                result = &mut work => {
                    self.replace_line("")?;
                    return result;
                }
                _ = ticks.tick() => self.replace_line(&format!("… {:.1} s", began.elapsed().as_secs_f64()))?,
            }
        }
    }

    /// Replaces the line of the cursor.
    fn replace_line(self, text: &str) -> Result<()> {
        if self.is_terminal {
            let mut out = io::stdout();
            write!(out, "\r\x1b[K{text}")?;
            out.flush()?;
        }
        Ok(())
    }
}
