//! One try of one probe.

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures::future::join_all;
use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe, TcpProbe};
use knmstate_core::probes::{Check, Evidence, Families, Family, Gateway, Need, Outlook, Server};
use simple_dns::TYPE;
use tokio::time::timeout;

use super::{
    api::ApiDoor,
    dns::{self, Answer},
    http,
    lookout::Lookout,
    ping, tcp,
    trouble::{Trouble, Unreached, first},
};

/// How long the API server may take for one answer.
const API: Duration = Duration::from_secs(5);

/// The name that every name server can say something about, though hardly by its address.
pub const DNS_HOST: &str = "root-servers.net";

/// What probes are tried with.
#[derive(Debug)]
pub(super) struct Means {
    pub(super) api: Option<Arc<dyn ApiDoor>>,
    /// The name that name servers are asked for.
    pub(super) dns_host: String,
    pub(super) dns_port: u16,
}

impl Means {
    /// Tries once, with sockets of its own. Gives the families in which a gateway answered, if gateways were asked.
    ///
    /// With evidence, only what is newer than the change counts.
    pub(super) async fn attempt(
        &self,
        check: &Check,
        need: Need,
        lookout: &Lookout,
        evidence: Option<&mut Evidence>,
    ) -> Result<Families, Trouble> {
        match check {
            Check::ApiServer => self.api_server(lookout).await?,
            Check::NodeReadiness => self.node_readiness(lookout, evidence).await?,
            Check::DefaultGateway { .. } => return gateways(need, lookout).await,
            Check::NameServers => self.name_servers(lookout).await?,
            Check::Ping(probe) => self.ping(probe, lookout).await?,
            Check::Tcp(probe) => self.tcp(probe, lookout).await?,
            Check::Http(probe) => self.http(probe, lookout).await?,
            Check::Dns(probe) => self.dns(probe, lookout).await?,
            Check::Lease(lease) => match lookout.known().await?.network().lease(lease) {
                Outlook::Now(()) => {}
                Outlook::Later => return Err(Trouble::passing("it is up and asks")),
                Outlook::Never(loss) => return Err(loss.into()),
            },
        }
        Ok(Families::NONE)
    }

    async fn api_server(&self, lookout: &Lookout) -> Result<(), Trouble> {
        let api = self.api()?;
        match timeout(API, api.reach()).await {
            Ok(reached) => judged(reached, None, lookout).await,
            Err(_) => Err(Trouble::passing("no answer")),
        }
    }

    async fn node_readiness(
        &self,
        lookout: &Lookout,
        evidence: Option<&mut Evidence>,
    ) -> Result<(), Trouble> {
        let api = self.api()?;
        let Ok(node) = timeout(API, api.node()).await else {
            return Err(Trouble::passing("the API server does not answer"));
        };
        let node = judged(node, None, lookout).await.map_err(|trouble| trouble.of(&"the API server"))?;
        let ready = match evidence {
            Some(evidence) => evidence.judge(&node),
            None => node.is_ready(),
        };
        ready.map_err(Trouble::passing)
    }

    fn api(&self) -> Result<&dyn ApiDoor, Trouble> {
        self.api.as_deref().ok_or_else(|| Trouble::for_good("there is no API server to ask"))
    }

    async fn name_servers(&self, lookout: &Lookout) -> Result<(), Trouble> {
        let servers = servers(lookout).await?;
        // That there is no such record is an answer, too; so one question is enough.
        let kind = if self.dns_host == DNS_HOST { TYPE::NS } else { TYPE::A };
        first(servers.iter().map(async |server| {
            let answer = dns::ask(server, self.dns_port, &self.dns_host, kind).await;
            judged(answer, Some(family(server.address)), lookout).await.map_err(|trouble| trouble.of(server))
        }))
        .await
        .map(|_| ())
    }

    async fn ping(&self, probe: &PingProbe, lookout: &Lookout) -> Result<(), Trouble> {
        let interface = probe.interface.as_deref();
        if let Some(interface) = interface
            && let Outlook::Never(loss) = lookout.known().await?.network().link(interface)
        {
            return Err(loss.into());
        }
        let addresses = self.addresses(&probe.host, lookout).await?;
        first(addresses.into_iter().map(async |address| {
            let echo = ping::echo(address, interface).await;
            judged(echo, Some(family(address)), lookout)
                .await
                .map_err(|trouble| of(&probe.host, address, trouble))
        }))
        .await
    }

    async fn tcp(&self, probe: &TcpProbe, lookout: &Lookout) -> Result<(), Trouble> {
        let addresses = self.addresses(&probe.host, lookout).await?;
        first(addresses.into_iter().map(async |address| {
            let opened = tcp::connect((address, probe.port).into()).await.map(drop);
            judged(opened, Some(family(address)), lookout)
                .await
                .map_err(|trouble| of(&probe.host, address, trouble))
        }))
        .await
    }

    async fn http(&self, probe: &HttpProbe, lookout: &Lookout) -> Result<(), Trouble> {
        let target =
            http::Target::parse(&probe.url, probe.insecure_skip_tls_verify).map_err(Trouble::for_good)?;
        let addresses = self.addresses(&target.host, lookout).await?;
        let target = &target;
        first(addresses.into_iter().map(async |address| {
            let status = target.get((address, target.port).into()).await;
            let status = judged(status, Some(family(address)), lookout).await;
            match status {
                Ok(status) if http::is_good(status, probe.expected_status) => Ok(()),
                Ok(status) => {
                    Err(of(&target.host, address, Trouble::passing(format!("it answers {status}"))))
                }
                Err(trouble) => Err(of(&target.host, address, trouble)),
            }
        }))
        .await
    }

    async fn dns(&self, probe: &DnsProbe, lookout: &Lookout) -> Result<(), Trouble> {
        let Some(server) = &probe.server else {
            return self.resolved(&probe.name, lookout).await.map(drop);
        };
        let address =
            server.parse().map_err(|_| Trouble::for_good(format!("{server:?} is not an IP address")))?;
        let server = Server { address, interface: None };
        self.addresses_from(&server, &probe.name, lookout).await.map(drop)
    }

    /// The addresses of a host, by the name servers of the node if it is not an address itself.
    async fn addresses(&self, host: &str, lookout: &Lookout) -> Result<Vec<IpAddr>, Trouble> {
        match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => self.resolved(host, lookout).await,
        }
    }

    async fn resolved(&self, name: &str, lookout: &Lookout) -> Result<Vec<IpAddr>, Trouble> {
        let servers = servers(lookout).await.map_err(|trouble| trouble.of(&format!("looking up {name}")))?;
        let names = lookout.known().await?.network().search_list(name);
        let looked_up = join_all(names.iter().map(|name| {
            first(servers.iter().map(async |server| {
                self.addresses_from(server, name, lookout).await.map_err(|trouble| trouble.of(server))
            }))
        }))
        .await;
        let mut troubles = Vec::new();
        for (name, result) in names.iter().zip(looked_up) {
            match result {
                Ok(addresses) => return Ok(addresses),
                Err(trouble) => troubles.push(trouble.of(&format!("looking up {name}"))),
            }
        }
        Err(Trouble::all(troubles))
    }

    async fn addresses_from(
        &self,
        server: &Server,
        name: &str,
        lookout: &Lookout,
    ) -> Result<Vec<IpAddr>, Trouble> {
        let ask = |kind| dns::ask(server, self.dns_port, name, kind);
        let (v4, v6) = tokio::join!(ask(TYPE::A), ask(TYPE::AAAA));
        let mut addresses = Vec::new();
        let mut trouble = None;
        for answer in [v4, v6] {
            match judged(answer, Some(family(server.address)), lookout).await {
                Ok(Answer::Addresses(found)) => addresses.extend(found),
                Ok(Answer::NoSuchName) => {}
                Err(why) => trouble = Some(why),
            }
        }
        if addresses.is_empty() {
            Err(trouble.unwrap_or_else(|| Trouble::passing(format!("it knows no address of {name}"))))
        } else {
            Ok(addresses)
        }
    }
}

/// The name servers that are in use now.
async fn servers(lookout: &Lookout) -> Result<Vec<Server>, Trouble> {
    match lookout.known().await?.network().name_servers() {
        Outlook::Now(servers) => Ok(servers),
        Outlook::Later => Err(Trouble::passing("no name server is configured yet")),
        Outlook::Never(loss) => Err(loss.into()),
    }
}

/// Asks the default gateways of the families that are needed, or of both.
async fn gateways(need: Need, lookout: &Lookout) -> Result<Families, Trouble> {
    let asked = match need {
        Need::Families(families) => families,
        Need::Nothing | Need::Pass | Need::AnyFamily => Families::ALL,
    };
    let known = lookout.known().await?;
    let results = join_all(asked.iter().map(async |family| {
        let result = match known.network().gateways(family) {
            Outlook::Now(gateways) => first(gateways.iter().map(|gateway| answers(gateway, lookout))).await,
            Outlook::Later => Err(Trouble::passing(format!("no {family} default route is there yet"))),
            Outlook::Never(loss) => Err(loss.into()),
        };
        (family, result)
    }))
    .await;
    let answered: Families =
        results.iter().filter(|(_, result)| result.is_ok()).map(|(family, _)| *family).collect();
    let mut troubles: Vec<_> = results.into_iter().filter_map(|(_, result)| result.err()).collect();
    troubles.dedup_by(|a, b| a.why == b.why);
    match need {
        Need::Families(_) if troubles.is_empty() => Ok(answered),
        Need::Families(_) => Err(Trouble::any(troubles)),
        _ if answered.is_empty() => Err(Trouble::all(troubles)),
        _ => Ok(answered),
    }
}

async fn answers(gateway: &Gateway, lookout: &Lookout) -> Result<(), Trouble> {
    let echo = ping::echo(gateway.address, Some(&gateway.interface)).await;
    judged(echo, Some(family(gateway.address)), lookout).await.map_err(|trouble| trouble.of(gateway))
}

/// What could not be reached for want of a route cannot be reached at all if none will come.
async fn judged<T>(
    result: Result<T, Unreached>,
    family: Option<Family>,
    lookout: &Lookout,
) -> Result<T, Trouble> {
    match result {
        Ok(good) => Ok(good),
        Err(Unreached { why, no_route: true }) => match lookout.known().await?.network().way_out(family) {
            Outlook::Never(loss) => Err(Trouble { why, lost: Some(loss.patience) }),
            Outlook::Now(()) | Outlook::Later => Err(Trouble::passing(why)),
        },
        Err(Unreached { why, no_route: false }) => Err(Trouble::passing(why)),
    }
}

/// A trouble with an address, which is named where the reader does not know it.
fn of(host: &str, address: IpAddr, trouble: Trouble) -> Trouble {
    if host.parse() == Ok(address) { trouble } else { trouble.of(&address) }
}

fn family(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}
