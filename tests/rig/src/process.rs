//! Child processes. The rig starts processes in this module only.
//!
//! No process may outlive its test, not even when the test is killed with SIGKILL and runs no destructor. So each child
//! asks the kernel to be killed when its parent dies. For the kernel the parent is a *thread*. So one thread, which
//! exists as long as the test process, forks all children.

use std::{
    fmt,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::wait;

/// The environment variable with the name of the lab, in each of its processes. Tests use it to prove that no process
/// is left.
pub const LAB_VARIABLE: &str = "KNMSTATE_RIG_LAB";

/// A command: its arguments, environment and standard input, and the namespaces in which it runs.
#[derive(Clone, Debug)]
pub struct Invocation {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Vec<u8>,
    forked_by_nsenter: bool,
}

impl Invocation {
    /// A program and its arguments.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            stdin: Vec::new(),
            forked_by_nsenter: false,
        }
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.argv.push(arg.into());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the bytes of the standard input, which [`run`](Self::run) passes; empty by default.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Makes this command the last arguments of another one, such as `unshare`.
    #[must_use]
    pub fn wrapped_in(mut self, mut argv: Vec<String>) -> Self {
        argv.append(&mut self.argv);
        self.argv = argv;
        self
    }

    /// Runs the command in the namespaces of a process. `flags` are those of nsenter(1).
    #[must_use]
    pub fn in_namespaces_of(self, pid: u32, flags: &[&str]) -> Self {
        let mut argv = vec!["nsenter".to_owned(), format!("--target={pid}")];
        argv.extend(flags.iter().map(ToString::to_string));
        argv.push("--".to_owned());
        // A process cannot change its own pid namespace, so nsenter forks the command and waits for it.
        let forked_by_nsenter = self.forked_by_nsenter || flags.contains(&"--pid");
        Self { forked_by_nsenter, ..self.wrapped_in(argv) }
    }

    /// The arguments, environment and standard input, for a node with its own kernel.
    pub(crate) fn into_parts(self) -> (Vec<String>, Vec<(String, String)>, Vec<u8>) {
        (self.argv, self.env, self.stdin)
    }

    /// Starts the command, which is killed when the returned value is dropped. Its output is appended to `log`. `name`
    /// is for messages.
    pub fn start(&self, name: &str, log: &Path) -> Result<Process> {
        let output = File::options().create(true).append(true).open(log).context("open the log")?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = on_spawner(move || command.spawn())?.with_context(|| format!("start {name}"))?;
        Ok(Process {
            child,
            name: name.to_owned(),
            log: log.to_owned(),
            forked_by_nsenter: self.forked_by_nsenter,
        })
    }

    /// Runs the command to its end. Kills it and fails when `limit` has passed.
    pub async fn run(&self, limit: Duration) -> Result<Output> {
        let mut command = tokio::process::Command::from(self.command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let runtime = tokio::runtime::Handle::current();
        let mut child = on_spawner(move || {
            let _entered = runtime.enter();
            command.spawn()
        })?
        .with_context(|| format!("start {}", self.argv.join(" ")))?;
        let group = KillGroup(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut pipe) = stdin {
                // Fails if the command ends without reading its input, which is no error.
                let _ = pipe.write_all(&self.stdin).await;
            }
        };
        let all = async {
            let ((), stdout, stderr) = tokio::join!(feed, read_all(stdout), read_all(stderr));
            Ok::<_, anyhow::Error>(Output { status: child.wait().await?, stdout: stdout?, stderr: stderr? })
        };
        let output = tokio::time::timeout(limit, all)
            .await
            .with_context(|| format!("still running after {limit:?}: {}", self.argv.join(" ")))??;
        std::mem::forget(group);
        Ok(output)
    }

    fn command(&self) -> std::process::Command {
        use std::os::unix::process::CommandExt as _;
        #[expect(clippy::disallowed_methods, reason = "the rig starts processes in this module only")]
        let mut command = std::process::Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(&self.argv);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command.process_group(0);
        command
    }
}

async fn read_all(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// The exit status and the output of a command that has ended.
#[derive(Clone, Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    /// The standard output, with a replacement for bytes that are not UTF-8.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The standard error, with a replacement for bytes that are not UTF-8.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns the standard output if the command succeeded. Otherwise fails with all of its output.
    pub fn success(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}: {}{}", self.status, self.stdout(), self.stderr());
        }
        Ok(self.stdout())
    }

    /// Returns the standard output as JSON. Fails if the command failed or printed no JSON.
    pub fn json(self) -> Result<serde_json::Value> {
        let stderr = self.stderr();
        let text = self.success()?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}{stderr}"))
    }
}

/// A running process. Dropping it kills its process group.
pub struct Process {
    child: std::process::Child,
    name: String,
    log: PathBuf,
    forked_by_nsenter: bool,
}

impl Process {
    /// The pid of the process that was started: of nsenter, if the command runs in namespaces.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of the log if the process has ended. [`wait::until`] does not wait after this error.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = tail(&self.log, 20);
                Err(wait::Fatal(format!("{} ended with {status}:\n{log}", self.name)).into())
            }
        }
    }

    /// Sends a signal to the process group, or to the command alone if it is a child of nsenter: nsenter would end at
    /// once, while the command still runs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match self.child_of_nsenter() {
            Some(command) => Ok(kill(Pid::from_raw(i32::try_from(command)?), signal)?),
            None => self.signal_group(signal),
        }
    }

    /// The pid of the command in the machine's pid namespace, also if it is a child of nsenter.
    pub(crate) fn command_pid(&self) -> Result<u32> {
        if self.forked_by_nsenter {
            self.child_of_nsenter().context("it is not running yet")
        } else {
            Ok(self.id())
        }
    }

    fn child_of_nsenter(&self) -> Option<u32> {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        children.split_whitespace().next().filter(|_| self.forked_by_nsenter)?.parse().ok()
    }

    fn signal_group(&self, signal: Signal) -> Result<()> {
        Ok(killpg(group_of(self.child.id())?, signal)?)
    }

    /// Sends SIGTERM, and waits for the end. Fails when `limit` has passed.
    pub async fn terminate(mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        wait::until(limit, &format!("{} to end", self.name.clone()), async || {
            self.child.try_wait()?.context("still running")
        })
        .await?;
        Ok(())
    }

    /// Waits for the end, at most for `limit`. Blocks the thread: for destructors, which cannot await.
    pub(crate) fn wait_blocking(&mut self, limit: Duration) {
        const STEP: Duration = Duration::from_millis(5);
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(STEP);
        }
    }

    /// The last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After wait, no process is left in a pid namespace that it has created.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.signal_group(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (pid {})", self.name, self.child.id())
    }
}

/// Kills a process group on drop: if a limit has passed, or the test no longer waits for the command.
struct KillGroup(Option<u32>);

impl Drop for KillGroup {
    fn drop(&mut self) {
        if let Some(Ok(group)) = self.0.map(group_of) {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

fn group_of(pid: u32) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(pid)?))
}

/// The last lines of a log, for error messages.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text =
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Writes a file that only its owner can read, such as a key.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs a function that starts a process on the thread that starts all of them.
fn on_spawner<T: Send + 'static>(spawn: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        sender
    });
    let (reply, answer) = channel();
    spawner
        .send(Box::new(move || {
            let _ = reply.send(spawn());
        }))
        .ok()
        .context("the spawner thread has ended")?;
    answer.recv().context("the spawner thread has ended")
}
