//! The services of a lab's network: gateway, DHCP and DNS. A test can switch each off and on while nodes use it.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use tokio::sync::Mutex;

use crate::{
    netns::NetworkNamespace,
    process::{Invocation, LAB_VARIABLE, Process},
    wait,
};

/// The address of the default gateway.
pub(crate) const GATEWAY: &str = "10.99.0.254";
/// The address of the name server.
pub(crate) const NAME_SERVER: &str = "10.99.0.53";

/// The default gateway: an address that answers ping while it is on. It forwards nothing.
#[derive(Debug)]
pub struct Gateway {
    network: Arc<NetworkNamespace>,
}

impl Gateway {
    pub(crate) fn new(network: Arc<NetworkNamespace>) -> Self {
        Self { network }
    }

    /// Adds its addresses.
    pub async fn on(&self) -> Result<()> {
        self.network
            .ip(&format!("addr replace {GATEWAY}/24 dev front\naddr replace fd99::fe/64 dev front nodad\n"))
            .await
    }

    /// Removes its addresses.
    pub async fn off(&self) -> Result<()> {
        self.network.ip(&format!("addr del {GATEWAY}/24 dev front\naddr del fd99::fe/64 dev front\n")).await
    }
}

/// A dnsmasq, as DHCP server or name server.
#[derive(Debug)]
pub struct Service {
    network: Arc<NetworkNamespace>,
    invocation: Invocation,
    name: String,
    log: std::path::PathBuf,
    /// The text in the log that shows that it is ready.
    ready: &'static str,
    running: Mutex<Option<Process>>,
}

impl Service {
    pub(crate) fn dhcp(network: Arc<NetworkNamespace>, directory: &Path, lab: &str) -> Self {
        let leases = directory.join("leases");
        let options = [
            "--port=0".to_owned(),
            "--interface=front".to_owned(),
            "--dhcp-authoritative".to_owned(),
            "--dhcp-range=10.99.0.100,10.99.0.200,1h".to_owned(),
            format!("--dhcp-option=option:router,{GATEWAY}"),
            format!("--dhcp-option=option:dns-server,{NAME_SERVER}"),
            "--dhcp-range=fd99::100,fd99::200,64,1h".to_owned(),
            "--dhcp-option=option6:dns-server,[fd99::53]".to_owned(),
            "--enable-ra".to_owned(),
            format!("--dhcp-leasefile={}", leases.display()),
        ];
        Self::dnsmasq(network, directory, lab, "dhcp", "DHCP, IP range", &options)
    }

    /// A DHCP server on the back segment, with ten addresses of each family, from .`first` and `fd98::first` on, and
    /// router advertisements with the prefix. Clients renew their lease after five seconds, so that tests need not wait
    /// long. They get neither a default route nor a name server.
    pub(crate) fn dhcp_on_back(
        network: Arc<NetworkNamespace>,
        directory: &Path,
        lab: &str,
        first: u8,
        lease_time: &str,
    ) -> Self {
        let name = format!("dhcp-on-back-{first}");
        let leases = directory.join(format!("{name}.leases"));
        let last = first + 9;
        let options = [
            "--port=0".to_owned(),
            "--interface=back".to_owned(),
            "--dhcp-authoritative".to_owned(),
            // Otherwise it pings each address for three seconds before it leases it.
            "--no-ping".to_owned(),
            format!("--dhcp-range=10.98.0.{first},10.98.0.{last},{lease_time}"),
            "--dhcp-option=option:T1,5s".to_owned(),
            "--dhcp-option=option:router".to_owned(),
            "--dhcp-option=option:dns-server".to_owned(),
            format!("--dhcp-range=fd98::{first},fd98::{last},slaac,64,{lease_time}"),
            "--enable-ra".to_owned(),
            "--ra-param=back,0,0".to_owned(),
            format!("--dhcp-leasefile={}", leases.display()),
        ];
        Self::dnsmasq(network, directory, lab, &name, "DHCP, IP range", &options)
    }

    pub(crate) fn dns(network: Arc<NetworkNamespace>, directory: &Path, lab: &str) -> Self {
        let options = [
            format!("--listen-address={NAME_SERVER},fd99::53"),
            "--local=/#/".to_owned(),
            "--host-record=node.test,10.99.0.1,fd99::1".to_owned(),
            // `root-servers.net NS a.root-servers.net`, which the default DNS probe asks for.
            "--dns-rr=root-servers.net,2,01610c726f6f742d73657276657273036e657400".to_owned(),
        ];
        Self::dnsmasq(network, directory, lab, "dns", "started", &options)
    }

    fn dnsmasq(
        network: Arc<NetworkNamespace>,
        directory: &Path,
        lab: &str,
        name: &str,
        ready: &'static str,
        options: &[String],
    ) -> Self {
        // As root: the kernel does not kill a process with its parent after the process has changed its user or group.
        let invocation = Invocation::new([
            "dnsmasq",
            "--keep-in-foreground",
            "--log-facility=-",
            "--user=root",
            "--group=root",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ])
        .args(options.iter().cloned())
        .env(LAB_VARIABLE, lab);
        let log = directory.join(format!("{name}.log"));
        Self { network, invocation, name: name.to_owned(), log, ready, running: Mutex::new(None) }
    }

    /// Starts the service, and returns when it is ready. Does nothing if it is running.
    pub async fn on(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        std::fs::write(&self.log, "")?;
        let mut process = self.network.enter(self.invocation.clone()).start(&self.name, &self.log)?;
        wait::until(Duration::from_secs(10), &format!("{} to be ready", self.name), async || {
            process.check_running()?;
            if !std::fs::read_to_string(&self.log)?.contains(self.ready) {
                bail!("its log does not have '{}' yet:\n{}", self.ready, process.log_tail(5));
            }
            Ok(())
        })
        .await?;
        *running = Some(process);
        Ok(())
    }

    /// Ends the service. Does nothing if it is not running.
    pub async fn off(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(process) => process.terminate(Duration::from_secs(5)).await,
            None => Ok(()),
        }
    }
}
