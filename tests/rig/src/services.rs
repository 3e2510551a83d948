//! What lives on the segments besides the API server: each can be switched off and on while nodes use it.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use tokio::sync::Mutex;

use crate::{
    netns::NetworkNamespace,
    process::{Invocation, LAB_VARIABLE, Process},
    wait,
};

/// Where nodes find the default gateway.
pub const GATEWAY: &str = "10.99.0.254";
/// Where nodes find a name server.
pub const NAME_SERVER: &str = "10.99.0.53";

/// The default gateway: an address that answers, or silence.
#[derive(Debug)]
pub struct Gateway {
    network: Arc<NetworkNamespace>,
}

impl Gateway {
    pub(crate) fn new(network: Arc<NetworkNamespace>) -> Self {
        Self { network }
    }

    pub async fn on(&self) -> Result<()> {
        self.network
            .ip(&format!("addr replace {GATEWAY}/24 dev front\naddr replace fd99::fe/64 dev front nodad\n"))
            .await
    }

    pub async fn off(&self) -> Result<()> {
        self.network.ip(&format!("addr del {GATEWAY}/24 dev front\naddr del fd99::fe/64 dev front\n")).await
    }
}

/// A dnsmasq with one job.
#[derive(Debug)]
pub struct Service {
    network: Arc<NetworkNamespace>,
    invocation: Invocation,
    name: String,
    log: std::path::PathBuf,
    ready: &'static str,
    running: Mutex<Option<Process>>,
}

impl Service {
    pub(crate) fn dhcp(network: Arc<NetworkNamespace>, folder: &Path, lab: &str) -> Self {
        let leases = folder.join("leases");
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
        Self::dnsmasq(network, folder, lab, "dhcp", "DHCP, IP range", &options)
    }

    /// Ten addresses of each family on the back segment, from .`first` on and from `fd98::first` on, and the prefix for
    /// whoever makes one himself. They are asked for again after a few seconds, so that a test need not wait for it. No
    /// way out and no name server comes with them.
    pub(crate) fn lender(
        network: Arc<NetworkNamespace>,
        folder: &Path,
        lab: &str,
        first: u8,
        time: &str,
    ) -> Self {
        let name = format!("lender-{first}");
        let leases = folder.join(format!("{name}.leases"));
        let last = first + 9;
        let options = [
            "--port=0".to_owned(),
            "--interface=back".to_owned(),
            "--dhcp-authoritative".to_owned(),
            // It would look for somebody who has the address already, for three seconds.
            "--no-ping".to_owned(),
            format!("--dhcp-range=10.98.0.{first},10.98.0.{last},{time}"),
            "--dhcp-option=option:T1,5s".to_owned(),
            "--dhcp-option=option:router".to_owned(),
            "--dhcp-option=option:dns-server".to_owned(),
            format!("--dhcp-range=fd98::{first},fd98::{last},slaac,64,{time}"),
            "--enable-ra".to_owned(),
            "--ra-param=back,0,0".to_owned(),
            format!("--dhcp-leasefile={}", leases.display()),
        ];
        Self::dnsmasq(network, folder, lab, &name, "DHCP, IP range", &options)
    }

    pub(crate) fn dns(network: Arc<NetworkNamespace>, folder: &Path, lab: &str) -> Self {
        let options = [
            format!("--listen-address={NAME_SERVER},fd99::53"),
            "--local=/#/".to_owned(),
            "--host-record=node.test,10.99.0.1,fd99::1".to_owned(),
            // `root-servers.net NS a.root-servers.net`, the question of the default DNS probe.
            "--dns-rr=root-servers.net,2,01610c726f6f742d73657276657273036e657400".to_owned(),
        ];
        Self::dnsmasq(network, folder, lab, "dns", "started", &options)
    }

    fn dnsmasq(
        network: Arc<NetworkNamespace>,
        folder: &Path,
        lab: &str,
        name: &str,
        ready: &'static str,
        options: &[String],
    ) -> Self {
        // root, because changing the user would make the kernel forget to kill it with the test.
        let invocation = Invocation::new([
            "dnsmasq",
            "--keep-in-foreground",
            "--log-facility=-",
            "--user=root",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ])
        .args(options.iter().cloned())
        .env(LAB_VARIABLE, lab);
        let log = folder.join(format!("{name}.log"));
        Self { network, invocation, name: name.to_owned(), log, ready, running: Mutex::new(None) }
    }

    /// Starts it, and returns when it answers.
    pub async fn on(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        std::fs::write(&self.log, "")?;
        let mut process = self.network.enter(self.invocation.clone()).start(&self.name, &self.log)?;
        wait::until(Duration::from_secs(10), &self.name, async || {
            process.check_running()?;
            if !std::fs::read_to_string(&self.log)?.contains(self.ready) {
                bail!("it has not said '{}':\n{}", self.ready, process.log_tail(5));
            }
            Ok(())
        })
        .await?;
        *running = Some(process);
        Ok(())
    }

    pub async fn off(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(process) => process.terminate(Duration::from_secs(5)).await,
            None => Ok(()),
        }
    }
}
