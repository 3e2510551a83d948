//! Runs commands inside a full-kernel node for the test outside. The library of this package is the protocol.

use std::{
    io::{self, Read, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::process::{CommandExt as _, ExitStatusExt},
    process::{ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Instant,
};

use guest_agent::{End, Reply, Request};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: guest-agent ADDRESS:PORT");
        return ExitCode::FAILURE;
    };
    match serve(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest agent on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    for connection in listener.incoming() {
        let connection = connection?;
        thread::spawn(move || {
            if let Err(error) = answer(connection) {
                eprintln!("guest agent: {error}");
            }
        });
    }
    Ok(())
}

fn answer(mut connection: TcpStream) -> io::Result<()> {
    let request = Request::read(&mut connection)?;
    let (sender, events) = channel();
    let watched = connection.try_clone()?;
    let hang_up = sender.clone();
    thread::spawn(move || wait_for_hang_up(watched, &hang_up));
    if let Some(reply) = run(request, sender, &events) {
        let mut wire = Vec::new();
        reply.write(&mut wire)?;
        connection.write_all(&wire)?;
    }
    // Dropping it would not close it, because the other thread still reads from it.
    connection.shutdown(Shutdown::Both)
}

enum Event {
    Ended(io::Result<i32>),
    OutputClosed,
    HungUp,
}

/// Runs a command. Returns nothing if the client has closed the connection.
#[expect(
    clippy::disallowed_methods,
    reason = "starting processes within a time limit is what the agent is for"
)]
fn run(request: Request, sender: Sender<Event>, events: &Receiver<Event>) -> Option<Reply> {
    let deadline = Instant::now() + request.limit;
    let not_started =
        |why: String| Some(Reply { end: End::NotStarted(why), stdout: Vec::new(), stderr: Vec::new() });
    let Some((program, arguments)) = request.argv.split_first() else {
        return not_started("the command is empty".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(request.env).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return not_started(format!("{program}: {error}")),
    };
    let group = child.id();
    let (stdout, stderr) = (Captured::default(), Captured::default());
    stdout.read(child.stdout.take(), &sender);
    stderr.read(child.stderr.take(), &sender);
    feed(child.stdin.take(), request.stdin);
    thread::spawn(move || sender.send(Event::Ended(child.wait().map(ExitStatusExt::into_raw))));

    let mut status = None;
    let mut open_outputs = 2;
    let end = loop {
        if let (Some(status), 0) = (status, open_outputs) {
            break End::Exited(status);
        }
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(Ok(ended))) => status = Some(ended),
            Ok(Event::Ended(Err(error))) => break End::NotStarted(format!("{program}: {error}")),
            Ok(Event::OutputClosed) => open_outputs -= 1,
            Ok(Event::HungUp) => {
                kill(group);
                return None;
            }
            // The channel cannot be closed before the command has ended and closed its outputs.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                kill(group);
                break End::TimedOut;
            }
        }
    };
    Some(Reply { end, stdout: stdout.take(), stderr: stderr.take() })
}

/// What was read from one output of a command so far.
#[derive(Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn read(&self, pipe: Option<impl Read + Send + 'static>, done: &Sender<Event>) {
        let (bytes, done) = (self.0.clone(), done.clone());
        thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            if let Some(mut pipe) = pipe {
                while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                    bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
                }
            }
            done.send(Event::OutputClosed)
        });
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn feed(pipe: Option<ChildStdin>, bytes: Vec<u8>) {
    thread::spawn(move || pipe.map(|mut pipe| pipe.write_all(&bytes)));
}

/// Waits until the client closes the connection: it sends nothing after its request.
fn wait_for_hang_up(mut connection: TcpStream, hung_up: &Sender<Event>) {
    let _ = connection.read(&mut [0]);
    let _ = hung_up.send(Event::HungUp);
}

fn kill(group: u32) {
    if let Ok(group) = i32::try_from(group) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}
