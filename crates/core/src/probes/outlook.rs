//! Whether what a probe needs is there, may still come, or is lost.

use std::{fmt, net::IpAddr, time::Duration};

use serde_json::Value;

use super::{Family, automatic};
use crate::document::{self, Document};

/// Whether something is there, and if not, whether it is worth waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook<T> {
    /// It is there.
    Now(T),
    /// It is not, but something is under way that may bring it.
    Later,
    /// It is not, and nothing is under way.
    Never(Loss),
}

/// Why something will not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub why: String,
    /// How long that must have been so before it is believed.
    pub patience: Duration,
}

/// A network service takes things away before it puts new ones there; what is seen in between is not yet a loss.
pub(super) const BETWEEN_TWO_STEPS: Duration = Duration::from_secs(1);

/// A link whose settings change is without carrier until both ends agree again, and is called down so long.
pub(super) const LINK_RETURNS: Duration = Duration::from_secs(5);

/// A default gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    pub address: IpAddr,
    pub interface: String,
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.address, self.interface)
    }
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: IpAddr,
    /// The link that its address is valid on, if it is not valid everywhere.
    pub interface: Option<String>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}%{interface}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The network of a node as it is, and how it was before the change, if there was one.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    pub now: &'a Document,
    pub before: Option<&'a Document>,
}

impl<'a> Network<'a> {
    /// The default gateways of a family: of the routes that are in force, those that go first.
    pub fn gateways(self, family: Family) -> Outlook<Vec<Gateway>> {
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
                (Some(address), Outlook::Now(())) => {
                    gateways.push(Gateway { address, interface: interface.to_owned() });
                }
                (_, Outlook::Never(gone)) => loss = Some(gone),
                (None, _) => {
                    let why =
                        format!("the {family} default route through {interface} names no gateway to ask");
                    loss = Some(Loss { why, patience: BETWEEN_TWO_STEPS });
                }
                (_, Outlook::Later) => {}
            }
        }
        match loss {
            Some(loss) if gateways.is_empty() => Outlook::Never(loss),
            _ => Outlook::Now(gateways),
        }
    }

    /// The name servers that are in use.
    pub fn name_servers(self) -> Outlook<Vec<Server>> {
        let all: Vec<_> = texts(self.resolver("server")).filter_map(server).collect();
        if all.is_empty() {
            let why = || "no name server is configured".to_owned();
            return self.unless_awaited(&Family::BOTH, automatic::NAME_SERVERS, why);
        }
        let mut loss = None;
        let mut servers = all;
        servers.retain(|server| match server.interface.as_deref().map(|interface| self.link(interface)) {
            Some(Outlook::Never(gone)) => {
                loss = Some(gone);
                false
            }
            _ => true,
        });
        match loss {
            Some(loss) if servers.is_empty() => Outlook::Never(loss),
            _ => Outlook::Now(servers),
        }
    }

    /// Whether a link can carry anything.
    pub fn link(self, name: &str) -> Outlook<()> {
        let link = document::interfaces(self.now).find(|interface| document::text(interface, "name") == name);
        let patience = match link.map(|link| document::text(link, "state")) {
            None | Some("absent") => BETWEEN_TWO_STEPS,
            Some("down") => LINK_RETURNS,
            Some(_) => return Outlook::Now(()),
        };
        Outlook::Never(Loss { why: format!("the carrying link {name} is gone"), patience })
    }

    /// Whether there is a way to places that no other route leads to; in either family if none is said.
    pub fn way_out(self, family: Option<Family>) -> Outlook<()> {
        let families = family.map_or_else(|| Family::BOTH.to_vec(), |family| vec![family]);
        if families.iter().any(|family| self.default_routes(*family).next().is_some()) {
            return Outlook::Now(());
        }
        self.unless_awaited(&families, automatic::ROUTES, || "no default route is left".to_owned())
    }

    /// The names under which a host is looked up, in this order: one that is a single word is searched for.
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
                // A route that refuses everything is not a way.
                && document::text(route, "route-type").is_empty()
        })
    }

    fn awaits(self, family: Family, what: automatic::What) -> bool {
        automatic::awaits(self.now, self.before, family, what)
    }

    fn unless_awaited<T>(
        self,
        families: &[Family],
        what: automatic::What,
        why: impl FnOnce() -> String,
    ) -> Outlook<T> {
        if families.iter().any(|family| self.awaits(*family, what)) {
            return Outlook::Later;
        }
        let may_return = families.iter().any(|family| automatic::may_return(self.now, *family, what));
        let patience = if may_return { LINK_RETURNS } else { BETWEEN_TWO_STEPS };
        Outlook::Never(Loss { why: why(), patience })
    }
}

/// The address of a route's next hop, if it has one: a route onto a wire is shown with the address that means none.
pub(super) fn gateway_address(route: &Document) -> Option<IpAddr> {
    document::text(route, "next-hop-address")
        .parse()
        .ok()
        .filter(|address: &IpAddr| !address.is_unspecified())
}

fn metric(route: &Document) -> i64 {
    route.get("metric").and_then(Value::as_i64).unwrap_or(0)
}

fn server(text: &str) -> Option<Server> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (text, None),
    };
    Some(Server { address: address.parse().ok()?, interface })
}

fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
