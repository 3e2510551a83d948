//! A network namespace with no name: it lives as long as the process that holds it, and leaves nothing behind.

use std::{fs::File, net::SocketAddr, os::fd::AsFd as _, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    process::{Invocation, Output, Process},
    wait,
};

/// How long a small command, such as ip(8), may take on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct NetworkNamespace {
    holder: Process,
}

impl NetworkNamespace {
    pub async fn create(log: &Path, lab: &str) -> Result<Self> {
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let holder = Invocation::new(["unshare", "--net", "sleep", "infinity"])
            .env(crate::process::LAB_VARIABLE, lab)
            .start("namespace holder", log)?;
        let namespace = Self { holder };
        wait::until(Duration::from_secs(10), "the network namespace", async || {
            if std::fs::read_link(namespace.path())? == own {
                bail!("the holder has not left the machine's own namespace yet");
            }
            Ok(())
        })
        .await?;
        Ok(namespace)
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// The same command, run in this namespace.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        invocation.inside(self.holder.id(), &["--net"])
    }

    pub async fn run<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.enter(Invocation::new(argv)).run(COMMAND_LIMIT).await
    }

    /// Runs the lines of an ip(8) batch; the first bad one is an error.
    pub async fn ip(&self, lines: &str) -> Result<()> {
        let invocation = self.enter(Invocation::new(["ip", "-batch", "-"])).stdin(lines);
        invocation.run(COMMAND_LIMIT).await?.success().with_context(|| format!("ip:\n{lines}"))?;
        Ok(())
    }

    /// Where sockets can be made from, without keeping the holder alive.
    pub fn sockets(&self) -> Result<Sockets> {
        Ok(Sockets { namespace: Arc::new(File::open(self.path())?) })
    }

    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        self.sockets()?.connect(address).await
    }

    /// A listener inside, served from the test process.
    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        self.sockets()?.listen(address).await
    }
}

/// Makes sockets inside a namespace: a socket belongs for good to the one that it was created in.
#[derive(Clone, Debug)]
pub struct Sockets {
    namespace: Arc<File>,
}

impl Sockets {
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = self
            .make(move || std::net::TcpStream::connect_timeout(&address, CONNECT_LIMIT))
            .await
            .with_context(|| format!("connect to {address} in the lab"))?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream)?)
    }

    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let listener = self
            .make(move || std::net::TcpListener::bind(address))
            .await
            .with_context(|| format!("listen on {address} in the lab"))?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_std(listener)?)
    }

    /// On a thread of its own, because entering a namespace cannot be undone for a thread that is in use.
    async fn make<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let namespace = self.namespace.clone();
        let (reply, answer) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let entered = setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
            let _ = reply.send(entered.and_then(|()| make()));
        });
        Ok(answer.await??)
    }
}
