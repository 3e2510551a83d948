//! A network namespace without a name: it exists as long as the process that holds it.

use std::{fs::File, net::SocketAddr, os::fd::AsFd as _, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    process::{Invocation, Output, Process},
    wait,
};

/// The time limit of a short command, such as ip(8), on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A network namespace and the process that holds it. Dropping it ends both.
#[derive(Debug)]
pub struct NetworkNamespace {
    holder: Process,
}

impl NetworkNamespace {
    pub(crate) async fn create(log: &Path, lab: &str) -> Result<Self> {
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let holder = Invocation::new(["unshare", "--net", "sleep", "infinity"])
            .env(crate::process::LAB_VARIABLE, lab)
            .start("namespace holder", log)?;
        let namespace = Self { holder };
        wait::until(Duration::from_secs(10), "the network namespace", async || {
            if std::fs::read_link(namespace.path())? == own {
                bail!("the holder is still in the machine's namespace");
            }
            Ok(())
        })
        .await?;
        Ok(namespace)
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// Changes a command so that it runs in this namespace.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        invocation.in_namespaces_of(self.holder.id(), &["--net"])
    }

    /// Runs a short command in this namespace.
    pub async fn run<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.enter(Invocation::new(argv)).run(COMMAND_LIMIT).await
    }

    /// Runs the lines of an ip(8) batch. Fails at the first line that fails.
    pub async fn ip(&self, lines: &str) -> Result<()> {
        let invocation = self.enter(Invocation::new(["ip", "-batch", "-"])).stdin(lines);
        invocation.run(COMMAND_LIMIT).await?.success().with_context(|| format!("ip:\n{lines}"))?;
        Ok(())
    }

    /// For sockets in this namespace after the holder has ended, too.
    pub(crate) fn sockets(&self) -> Result<Sockets> {
        Ok(Sockets { namespace: Arc::new(File::open(self.path())?) })
    }

    /// A connection from this namespace, for the test process.
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        self.sockets()?.connect(address).await
    }

    /// A listener in this namespace, for the test process.
    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        self.sockets()?.listen(address).await
    }
}

/// Creates sockets in a network namespace. A socket stays in the namespace in which it was created.
#[derive(Clone, Debug)]
pub struct Sockets {
    namespace: Arc<File>,
}

impl Sockets {
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = self
            .in_namespace(move || std::net::TcpStream::connect_timeout(&address, CONNECT_LIMIT))
            .await
            .with_context(|| format!("connect to {address} in the lab"))?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream)?)
    }

    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let listener = self
            .in_namespace(move || std::net::TcpListener::bind(address))
            .await
            .with_context(|| format!("listen on {address} in the lab"))?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_std(listener)?)
    }

    /// Runs `create` on a new thread, which enters the namespace, because other tasks use the current thread.
    async fn in_namespace<T: Send + 'static>(
        &self,
        create: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let namespace = self.namespace.clone();
        let (reply, answer) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let entered = setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
            let _ = reply.send(entered.and_then(|()| create()));
        });
        Ok(answer.await??)
    }
}
