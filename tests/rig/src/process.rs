//! Child processes, the only place where the rig starts any.
//!
//! Nothing that a test starts may outlive it, not even when the test is killed with SIGKILL and runs no destructor.
//! So every child asks the kernel to be killed when its parent dies. The kernel means the parent *thread*: children
//! are therefore forked by one thread that lives as long as the test process.

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

/// Marks every process of a lab, so that a test can prove that none is left.
pub const LAB_VARIABLE: &str = "KNMSTATE_RIG_LAB";

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Invocation {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Vec<u8>,
    behind_nsenter: bool,
}

impl Invocation {
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            stdin: Vec::new(),
            behind_nsenter: false,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.argv.push(arg.into());
        self
    }

    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// The same, as the argument of another command.
    #[must_use]
    pub fn after(mut self, mut argv: Vec<String>) -> Self {
        argv.append(&mut self.argv);
        self.argv = argv;
        self
    }

    /// The same, run inside the namespaces of a process: `flags` are those of nsenter(1).
    #[must_use]
    pub fn inside(self, pid: u32, flags: &[&str]) -> Self {
        let mut argv = vec!["nsenter".to_owned(), format!("--target={pid}")];
        argv.extend(flags.iter().map(ToString::to_string));
        argv.push("--".to_owned());
        // Only a child can be in another pid namespace than its parent, so that nsenter stays and waits for it.
        let behind_nsenter = self.behind_nsenter || flags.contains(&"--pid");
        Self { behind_nsenter, ..self.after(argv) }
    }

    /// Its words, its environment and its input, for a node that does not share this kernel.
    pub(crate) fn into_parts(self) -> (Vec<String>, Vec<(String, String)>, Vec<u8>) {
        (self.argv, self.env, self.stdin)
    }

    /// Starts it for as long as the returned handle lives; its output goes to `log`.
    pub fn start(&self, name: &str, log: &Path) -> Result<Process> {
        let output = File::options().create(true).append(true).open(log).context("open the log")?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = on_spawner(move || command.spawn())?.with_context(|| format!("start {name}"))?;
        Ok(Process { child, name: name.to_owned(), log: log.to_owned(), behind_nsenter: self.behind_nsenter })
    }

    /// Runs it to its end, or kills it when `limit` has passed.
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
                // A command that reads no input closes the pipe early, which is its right.
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
        #[expect(clippy::disallowed_methods, reason = "this module is where the rig starts processes")]
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

/// What a finished command left behind.
#[derive(Clone, Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Its standard output, or an error that shows what it printed.
    pub fn success(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}: {}{}", self.status, self.stdout(), self.stderr());
        }
        Ok(self.stdout())
    }

    pub fn json(self) -> Result<serde_json::Value> {
        let complaints = self.stderr();
        let text = self.success()?;
        serde_json::from_str(&text).with_context(|| format!("this is no JSON: {text}{complaints}"))
    }
}

/// A running process and all that it forked into its group; killed when dropped.
pub struct Process {
    child: std::process::Child,
    name: String,
    log: PathBuf,
    behind_nsenter: bool,
}

impl Process {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of its log when the process is gone.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let last_words = tail(&self.log, 20);
                Err(wait::Fatal(format!("{} ended with {status}:\n{last_words}", self.name)).into())
            }
        }
    }

    /// Behind nsenter, only the process that is meant gets the signal: nsenter would die of it at once, and seem to be
    /// the end of a process that still has things to do.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match self.behind() {
            Some(meant) => Ok(kill(Pid::from_raw(i32::try_from(meant)?), signal)?),
            None => self.signal_group(signal),
        }
    }

    /// The process that is meant, as the machine outside sees it: behind nsenter it is another one.
    pub fn innermost(&self) -> Result<u32> {
        if self.behind_nsenter { self.behind().context("it is not running yet") } else { Ok(self.id()) }
    }

    fn behind(&self) -> Option<u32> {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        children.split_whitespace().next().filter(|_| self.behind_nsenter)?.parse().ok()
    }

    fn signal_group(&self, signal: Signal) -> Result<()> {
        Ok(killpg(group_of(self.child.id())?, signal)?)
    }

    /// Asks it to end and waits for that.
    pub async fn terminate(mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        wait::until(limit, &format!("{} to end", self.name.clone()), async || {
            self.child.try_wait()?.context("still running")
        })
        .await?;
        Ok(())
    }

    /// Waits for its end in a destructor, where nothing can be awaited.
    pub(crate) fn wait_briefly(&mut self, limit: Duration) {
        const STEP: Duration = Duration::from_millis(5);
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(STEP);
        }
    }

    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Reaping is what makes it gone: until then its pid namespace, if it has one, may still be emptying.
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

/// Kills a group that was not waited for, as when a limit has passed or the test was abandoned.
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
pub fn tail(path: &Path, lines: usize) -> String {
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
        .context("the spawner thread is gone")?;
    answer.recv().context("the spawner thread is gone")
}
