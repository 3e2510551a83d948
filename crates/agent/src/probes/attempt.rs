//! One attempt of one probe.

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures::future::join_all;
use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe, TcpProbe};
use knmstate_core::probes::{Check, Evidence, Families, Family, Forecast, Gateway, NameServer, Requirement};
use simple_dns::TYPE;
use tokio::time::timeout;

use super::{
    api::ApiEndpoint,
    attempt_error::{AttemptError, Unreachable, first},
    dns::{self, DnsAnswer},
    http,
    network_observer::NetworkObserver,
    ping, tcp,
};

/// How long the API server may take to respond.
const API_TIMEOUT: Duration = Duration::from_secs(5);

/// The name that name servers have to resolve by default: the records that list the root servers, which every resolver
/// can get.
pub const PROBE_DNS_HOST: &str = "root-servers.net";

/// Runs single attempts of probes.
#[derive(Debug)]
pub(super) struct ProbeRunner {
    pub(super) api: Option<Arc<dyn ApiEndpoint>>,
    /// The name that name servers have to resolve.
    pub(super) dns_host: String,
    pub(super) dns_port: u16,
}

impl ProbeRunner {
    /// Tries once, with new sockets. Returns the address families in which a default gateway responded, if the probe is
    /// about gateways.
    ///
    /// With `evidence`, only what is newer than the change counts.
    pub(super) async fn attempt(
        &self,
        check: &Check,
        need: Requirement,
        observer: &NetworkObserver,
        evidence: Option<&mut Evidence>,
    ) -> Result<Families, AttemptError> {
        match check {
            Check::ApiServer => self.api_server(observer).await?,
            Check::NodeReadiness => self.node_readiness(observer, evidence).await?,
            Check::DefaultGateway { .. } => return gateways(need, observer).await,
            Check::NameServers => self.name_servers(observer).await?,
            Check::Ping(probe) => self.ping(probe, observer).await?,
            Check::Tcp(probe) => self.tcp(probe, observer).await?,
            Check::Http(probe) => self.http(probe, observer).await?,
            Check::Dns(probe) => self.dns(probe, observer).await?,
            Check::Lease(lease) => match observer.known().await?.network().lease(lease) {
                Forecast::Now(()) => {}
                Forecast::Later => return Err(AttemptError::temporary("still requesting an address")),
                Forecast::Never(loss) => return Err(loss.into()),
            },
        }
        Ok(Families::NONE)
    }

    async fn api_server(&self, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let api = self.api()?;
        match timeout(API_TIMEOUT, api.reach()).await {
            Ok(reached) => judge(reached, None, observer).await,
            Err(_) => Err(AttemptError::temporary("no answer")),
        }
    }

    async fn node_readiness(
        &self,
        observer: &NetworkObserver,
        evidence: Option<&mut Evidence>,
    ) -> Result<(), AttemptError> {
        let api = self.api()?;
        let Ok(node) = timeout(API_TIMEOUT, api.node()).await else {
            return Err(AttemptError::temporary("no answer from the API server"));
        };
        let node = judge(node, None, observer).await.map_err(|error| error.of(&"the API server"))?;
        let ready = match evidence {
            Some(evidence) => evidence.judge(&node),
            None => node.is_ready(),
        };
        ready.map_err(AttemptError::temporary)
    }

    fn api(&self) -> Result<&dyn ApiEndpoint, AttemptError> {
        self.api.as_deref().ok_or_else(|| AttemptError::permanent("no API server is configured"))
    }

    async fn name_servers(&self, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let servers = servers(observer).await?;
        // A response without records proves that the server works, too. So one query is enough.
        let kind = if self.dns_host == PROBE_DNS_HOST { TYPE::NS } else { TYPE::A };
        first(servers.iter().map(async |server| {
            let answer = dns::query(server, self.dns_port, &self.dns_host, kind).await;
            judge(answer, Some(family(server.address)), observer).await.map_err(|error| error.of(server))
        }))
        .await
        .map(|_| ())
    }

    async fn ping(&self, probe: &PingProbe, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let interface = probe.interface.as_deref();
        if let Some(interface) = interface
            && let Forecast::Never(loss) = observer.known().await?.network().link(interface)
        {
            return Err(loss.into());
        }
        let addresses = self.addresses(&probe.host, observer).await?;
        first(addresses.into_iter().map(async |address| {
            let echo = ping::echo(address, interface).await;
            judge(echo, Some(family(address)), observer)
                .await
                .map_err(|error| of(&probe.host, address, error))
        }))
        .await
    }

    async fn tcp(&self, probe: &TcpProbe, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let addresses = self.addresses(&probe.host, observer).await?;
        first(addresses.into_iter().map(async |address| {
            let opened = tcp::connect((address, probe.port).into()).await.map(drop);
            judge(opened, Some(family(address)), observer)
                .await
                .map_err(|error| of(&probe.host, address, error))
        }))
        .await
    }

    async fn http(&self, probe: &HttpProbe, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let target = http::Target::parse(&probe.url, probe.insecure_skip_tls_verify)
            .map_err(AttemptError::permanent)?;
        let addresses = self.addresses(&target.host, observer).await?;
        let target = &target;
        first(addresses.into_iter().map(async |address| {
            let status = target.get((address, target.port).into()).await;
            let status = judge(status, Some(family(address)), observer).await;
            match status {
                Ok(status) if http::is_good(status, probe.expected_status) => Ok(()),
                Ok(status) => {
                    Err(of(&target.host, address, AttemptError::temporary(format!("HTTP {status}"))))
                }
                Err(error) => Err(of(&target.host, address, error)),
            }
        }))
        .await
    }

    async fn dns(&self, probe: &DnsProbe, observer: &NetworkObserver) -> Result<(), AttemptError> {
        let Some(server) = &probe.server else {
            return self.resolved(&probe.name, observer).await.map(drop);
        };
        let address = server
            .parse()
            .map_err(|_| AttemptError::permanent(format!("{server:?} is not an IP address")))?;
        let server = NameServer { address, interface: None };
        self.addresses_from(&server, &probe.name, observer).await.map(drop)
    }

    /// The addresses of a host: parsed if it is an address, otherwise from the name servers of the node.
    async fn addresses(&self, host: &str, observer: &NetworkObserver) -> Result<Vec<IpAddr>, AttemptError> {
        match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => self.resolved(host, observer).await,
        }
    }

    async fn resolved(&self, name: &str, observer: &NetworkObserver) -> Result<Vec<IpAddr>, AttemptError> {
        let servers = servers(observer).await.map_err(|error| error.of(&format!("looking up {name}")))?;
        let names = observer.known().await?.network().search_list(name);
        let looked_up = join_all(names.iter().map(|name| {
            first(servers.iter().map(async |server| {
                self.addresses_from(server, name, observer).await.map_err(|error| error.of(server))
            }))
        }))
        .await;
        let mut errors = Vec::new();
        for (name, result) in names.iter().zip(looked_up) {
            match result {
                Ok(addresses) => return Ok(addresses),
                Err(error) => errors.push(error.of(&format!("looking up {name}"))),
            }
        }
        Err(AttemptError::all(errors))
    }

    async fn addresses_from(
        &self,
        server: &NameServer,
        name: &str,
        observer: &NetworkObserver,
    ) -> Result<Vec<IpAddr>, AttemptError> {
        let query = |kind| dns::query(server, self.dns_port, name, kind);
        let (v4, v6) = tokio::join!(query(TYPE::A), query(TYPE::AAAA));
        let mut addresses = Vec::new();
        let mut error = None;
        for answer in [v4, v6] {
            match judge(answer, Some(family(server.address)), observer).await {
                Ok(DnsAnswer::Addresses(found)) => addresses.extend(found),
                Ok(DnsAnswer::NoSuchName) => {}
                Err(why) => error = Some(why),
            }
        }
        if addresses.is_empty() {
            Err(error.unwrap_or_else(|| AttemptError::temporary(format!("it has no address for {name}"))))
        } else {
            Ok(addresses)
        }
    }
}

/// The name servers of the node.
async fn servers(observer: &NetworkObserver) -> Result<Vec<NameServer>, AttemptError> {
    match observer.known().await?.network().name_servers() {
        Forecast::Now(servers) => Ok(servers),
        Forecast::Later => Err(AttemptError::temporary("no name server is configured yet")),
        Forecast::Never(loss) => Err(loss.into()),
    }
}

/// Pings the default gateways of the families that are needed, or of both.
async fn gateways(need: Requirement, observer: &NetworkObserver) -> Result<Families, AttemptError> {
    let asked = match need {
        Requirement::Families(families) => families,
        Requirement::Nothing | Requirement::Pass | Requirement::AnyFamily => Families::ALL,
    };
    let known = observer.known().await?;
    let results = join_all(asked.iter().map(async |family| {
        let result = match known.network().gateways(family) {
            Forecast::Now(gateways) => {
                first(gateways.iter().map(|gateway| ping_gateway(gateway, observer))).await
            }
            Forecast::Later => Err(AttemptError::temporary(format!("no {family} default route yet"))),
            Forecast::Never(loss) => Err(loss.into()),
        };
        (family, result)
    }))
    .await;
    let answered: Families =
        results.iter().filter(|(_, result)| result.is_ok()).map(|(family, _)| *family).collect();
    let mut errors: Vec<_> = results.into_iter().filter_map(|(_, result)| result.err()).collect();
    errors.dedup_by(|a, b| a.why == b.why);
    match need {
        Requirement::Families(_) if errors.is_empty() => Ok(answered),
        Requirement::Families(_) => Err(AttemptError::any(errors)),
        _ if answered.is_empty() => Err(AttemptError::all(errors)),
        _ => Ok(answered),
    }
}

async fn ping_gateway(gateway: &Gateway, observer: &NetworkObserver) -> Result<(), AttemptError> {
    let echo = ping::echo(gateway.address, Some(&gateway.interface)).await;
    judge(echo, Some(family(gateway.address)), observer).await.map_err(|error| error.of(gateway))
}

/// Classifies the result of an attempt: if it failed because there is no route, and none can appear any more, no later
/// attempt can pass.
async fn judge<T>(
    result: Result<T, Unreachable>,
    family: Option<Family>,
    observer: &NetworkObserver,
) -> Result<T, AttemptError> {
    match result {
        Ok(good) => Ok(good),
        Err(Unreachable { why, no_route: true }) => {
            match observer.known().await?.network().default_route(family) {
                Forecast::Never(loss) => Err(AttemptError { why, lost: Some(loss.grace) }),
                Forecast::Now(()) | Forecast::Later => Err(AttemptError::temporary(why)),
            }
        }
        Err(Unreachable { why, no_route: false }) => Err(AttemptError::temporary(why)),
    }
}

/// Adds the address to an error, unless the probe names it already.
fn of(host: &str, address: IpAddr, error: AttemptError) -> AttemptError {
    if host.parse() == Ok(address) { error } else { error.of(&address) }
}

fn family(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}
