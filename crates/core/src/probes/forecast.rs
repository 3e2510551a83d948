//! Whether something that a probe needs exists, may still appear, or will not.

use std::{fmt, net::IpAddr, time::Duration};

use serde_json::Value;

use super::{
    Family,
    automatic::{self, Automatic},
};
use knmstate_document::{self as document, Document};

/// Whether something exists, and if not, whether waiting for it makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forecast<T> {
    /// It exists.
    Now(T),
    /// It does not exist, but may appear by automatic configuration.
    Later,
    /// It does not exist, and nothing will create it.
    Never(Loss),
}

/// Why something will not appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub why: String,
    /// How long the network must stay like that before the probe gives up.
    pub grace: Duration,
}

/// NetworkManager removes configuration before it adds the new one, so a state without both may be temporary.
pub(super) const BETWEEN_TWO_STEPS: Duration = Duration::from_secs(1);

/// A link whose settings change has no carrier until both ends have negotiated again, and counts as down until then.
pub(super) const LINK_RETURNS: Duration = Duration::from_secs(5);

/// A default gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    pub address: IpAddr,
    pub interface: String,
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.address, self.interface)
    }
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    pub address: IpAddr,
    /// The link of a link-local address.
    pub interface: Option<String>,
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}%{interface}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The current network of a node, and the network before the change, if there was one.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    pub now: &'a Document,
    pub before: Option<&'a Document>,
}

impl<'a> Network<'a> {
    /// The default gateways of a family: those of the routes with the lowest metric.
    pub fn gateways(self, family: Family) -> Forecast<Vec<Gateway>> {
        let routes: Vec<_> = self.default_routes(family).collect();
        let Some(first) = routes.iter().map(|route| metric(route)).min() else {
            return self.unless_awaited(&[family], automatic::ROUTES, || {
                let other = Family::BOTH.into_iter().find(|other| *other != family);
                let nothing_at_all = other.is_some_and(|other| {
                    self.default_routes(other).next().is_none() && !self.awaits(other, automatic::ROUTES)
                });
                if nothing_at_all {
                    "no default route is left".to_owned()
                } else {
                    format!("no {family} default route is left")
                }
            });
        };
        let mut gateways = Vec::new();
        let mut loss = None;
        for route in routes.into_iter().filter(|route| metric(route) == first) {
            let interface = document::text(route, "next-hop-interface");
            match (gateway_address(route), self.link(interface)) {
                (Some(address), Forecast::Now(())) => {
                    gateways.push(Gateway { address, interface: interface.to_owned() });
                }
                (_, Forecast::Never(gone)) => loss = Some(gone),
                (None, _) => {
                    let why =
                        format!("the {family} default route through {interface} has no gateway to ping");
                    loss = Some(Loss { why, grace: BETWEEN_TWO_STEPS });
                }
                (_, Forecast::Later) => {}
            }
        }
        match loss {
            Some(loss) if gateways.is_empty() => Forecast::Never(loss),
            _ => Forecast::Now(gateways),
        }
    }

    /// The name servers in use.
    pub fn name_servers(self) -> Forecast<Vec<NameServer>> {
        let all: Vec<_> = texts(self.resolver("server")).filter_map(server).collect();
        if all.is_empty() {
            let why = || "no name server is configured".to_owned();
            return self.unless_awaited(&Family::BOTH, automatic::NAME_SERVERS, why);
        }
        let mut loss = None;
        let mut servers = all;
        servers.retain(|server| match server.interface.as_deref().map(|interface| self.link(interface)) {
            Some(Forecast::Never(gone)) => {
                loss = Some(gone);
                false
            }
            _ => true,
        });
        match loss {
            Some(loss) if servers.is_empty() => Forecast::Never(loss),
            _ => Forecast::Now(servers),
        }
    }

    /// Whether a link exists and is up.
    pub fn link(self, name: &str) -> Forecast<()> {
        let link = document::interfaces(self.now).find(|interface| document::text(interface, "name") == name);
        let (why, grace) = match link.map(|link| document::text(link, "state")) {
            None | Some("absent") => (format!("there is no interface {name}"), BETWEEN_TWO_STEPS),
            Some("down") => (format!("{name} is down"), LINK_RETURNS),
            Some(_) => return Forecast::Now(()),
        };
        Forecast::Never(Loss { why, grace })
    }

    /// Whether there is a default route; of either family if none is given.
    pub fn default_route(self, family: Option<Family>) -> Forecast<()> {
        let families = family.map_or_else(|| Family::BOTH.to_vec(), |family| vec![family]);
        if families.iter().any(|family| self.default_routes(*family).next().is_some()) {
            return Forecast::Now(());
        }
        self.unless_awaited(&families, automatic::ROUTES, || "no default route is left".to_owned())
    }

    /// The names to look up for a host name, in this order: the search domains apply to a name without dots.
    pub fn search_list(self, name: &str) -> Vec<String> {
        let domains = texts(self.resolver("search")).filter(|_| !name.contains('.'));
        let searched = domains.map(|domain| format!("{name}.{}", domain.trim_matches('.')));
        searched.chain([name.to_owned()]).collect()
    }

    fn resolver(self, key: &str) -> Option<&'a Value> {
        self.now.get("dns-resolver")?.get("running")?.get(key)
    }

    fn default_routes(self, family: Family) -> impl Iterator<Item = &'a Document> {
        document::running_routes(self.now).filter(move |route| {
            document::is_default_route(route)
                && Family::of(document::text(route, "destination")) == family
                // Routes of other types, such as unreachable, lead nowhere.
                && document::text(route, "route-type").is_empty()
        })
    }

    fn awaits(self, family: Family, what: Automatic) -> bool {
        automatic::awaits(self.now, self.before, family, what)
    }

    fn unless_awaited<T>(
        self,
        families: &[Family],
        what: Automatic,
        why: impl FnOnce() -> String,
    ) -> Forecast<T> {
        if families.iter().any(|family| self.awaits(*family, what)) {
            return Forecast::Later;
        }
        let may_return = families.iter().any(|family| automatic::may_return(self.now, *family, what));
        let grace = if may_return { LINK_RETURNS } else { BETWEEN_TWO_STEPS };
        Forecast::Never(Loss { why: why(), grace })
    }
}

/// The address of a route's next hop, if it has one: an on-link route has the unspecified address.
pub(super) fn gateway_address(route: &Document) -> Option<IpAddr> {
    document::text(route, "next-hop-address")
        .parse()
        .ok()
        .filter(|address: &IpAddr| !address.is_unspecified())
}

fn metric(route: &Document) -> i64 {
    route.get("metric").and_then(Value::as_i64).unwrap_or(0)
}

fn server(text: &str) -> Option<NameServer> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (text, None),
    };
    Some(NameServer { address: address.parse().ok()?, interface })
}

fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
