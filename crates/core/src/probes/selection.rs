//! Which probes a change has: those that run for every policy, and those of its order.

use std::{fmt, time::Duration};

use knmstate_api::probe::{BuiltInProbe, ProbePolicy};
use serde_json::Value;

use super::{AddressLease, Check, Families, Family, Probe};
use knmstate_document::{self as document, Document};

/// The timeout of a probe without its own.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(2);

/// The connection of a node to an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAccess {
    /// There is no API server: the probes that need it do not exist.
    None,
    /// It was reached recently.
    Connected,
    /// It cannot be reached. A change cannot break a connection that is broken already. If the probes were required
    /// nevertheless, a node that booted without a connection could never get the network that it needs for one.
    Unreachable,
}

/// A probe of an order that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidProbe {
    pub probe: String,
    pub why: String,
}

impl fmt::Display for InvalidProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe {:?}: {}", self.probe, self.why)
    }
}

impl std::error::Error for InvalidProbe {}

/// The probes of a change: the built-in ones, whose policy is from the order or else from the desired state, then those
/// of the order. Disabled ones are left out. No timeout is longer than `within`.
///
/// # Errors
///
/// If a probe has no check or several, or a built-in one is listed more than once.
pub fn select(
    ordered: &[knmstate_api::Probe],
    desired: &Document,
    api: ApiAccess,
    within: Option<Duration>,
) -> Result<Vec<Probe>, InvalidProbe> {
    let mut probes = Vec::new();
    for (built_in, name) in BUILT_IN {
        if api == ApiAccess::None && asks_the_api(built_in) {
            continue;
        }
        let mut listed = ordered.iter().filter(|probe| probe.built_in == Some(built_in));
        let explicit = listed.next();
        if let Some(second) = listed.next() {
            return Err(invalid(second, format!("{built_in:?} is listed more than once")));
        }
        let policy = explicit.map_or_else(|| default_policy(built_in, desired, api), |probe| probe.policy);
        probes.push(Probe {
            name: explicit.map_or(name, |probe| &probe.name).to_owned(),
            check: check(built_in, policy, desired),
            policy,
            timeout: timeout(explicit, within),
        });
    }
    for probe in ordered {
        if let Some(check) = own_check(probe, desired)? {
            let timeout = timeout(Some(probe), within);
            probes.push(Probe { name: probe.name.clone(), check, policy: probe.policy, timeout });
        }
    }
    probes.retain(|probe| probe.policy != ProbePolicy::Disabled);
    Ok(probes)
}

const BUILT_IN: [(BuiltInProbe, &str); 4] = [
    (BuiltInProbe::ApiServer, "api-server"),
    (BuiltInProbe::NodeReadiness, "node-readiness"),
    (BuiltInProbe::DefaultGateway, "default-gateway"),
    (BuiltInProbe::NameServers, "name-servers"),
];

/// Whether this is the name that a built-in probe has if its order gives it no other.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(_, built_in)| *built_in == name)
}

fn asks_the_api(built_in: BuiltInProbe) -> bool {
    matches!(built_in, BuiltInProbe::ApiServer | BuiltInProbe::NodeReadiness)
}

/// When a built-in probe counts if the order does not list it.
fn default_policy(built_in: BuiltInProbe, desired: &Document, api: ApiAccess) -> ProbePolicy {
    let required = match built_in {
        BuiltInProbe::ApiServer | BuiltInProbe::NodeReadiness => api == ApiAccess::Connected,
        BuiltInProbe::DefaultGateway => !desired_gateways(desired).is_empty(),
        BuiltInProbe::NameServers => sets_name_servers(desired),
    };
    if required { ProbePolicy::Required } else { ProbePolicy::IfPassingBefore }
}

fn check(built_in: BuiltInProbe, policy: ProbePolicy, desired: &Document) -> Check {
    match built_in {
        BuiltInProbe::ApiServer => Check::ApiServer,
        BuiltInProbe::NodeReadiness => Check::NodeReadiness,
        BuiltInProbe::DefaultGateway => {
            let required = policy == ProbePolicy::Required;
            let wanted = if required { desired_gateways(desired) } else { Families::NONE };
            Check::DefaultGateway { wanted }
        }
        BuiltInProbe::NameServers => Check::NameServers,
    }
}

/// The families for which the desired state sets a default route that has a gateway.
fn desired_gateways(desired: &Document) -> Families {
    document::config_routes(desired)
        .filter(|route| document::is_default_route(route) && !document::is_absent(route))
        .filter(|route| super::forecast::gateway_address(route).is_some())
        .map(|route| Family::of(document::text(route, "destination")))
        .collect()
}

fn sets_name_servers(desired: &Document) -> bool {
    let servers = desired.get("dns-resolver").and_then(|resolver| resolver.get("config")?.get("server"));
    servers.and_then(Value::as_array).is_some_and(|servers| !servers.is_empty())
}

/// The check of a probe of the order; `None` for an entry about a built-in probe.
fn own_check(probe: &knmstate_api::Probe, desired: &Document) -> Result<Option<Check>, InvalidProbe> {
    let knmstate_api::Probe { ping, tcp, http, dns, lease, built_in, .. } = probe;
    let checks = [
        ping.clone().map(Check::Ping),
        tcp.clone().map(Check::Tcp),
        http.clone().map(Check::Http),
        dns.clone().map(Check::Dns),
        lease.as_ref().map(|lease| Check::Lease(AddressLease::probed(lease, desired))),
    ];
    let mut checks = checks.into_iter().flatten();
    match (checks.next(), checks.next(), built_in) {
        (Some(only), None, None) => Ok(Some(only)),
        (None, None, Some(_)) => Ok(None),
        _ => Err(invalid(
            probe,
            "it must have exactly one of ping, tcp, http, dns, lease and builtIn".to_owned(),
        )),
    }
}

fn invalid(probe: &knmstate_api::Probe, why: String) -> InvalidProbe {
    InvalidProbe { probe: probe.name.clone(), why }
}

fn timeout(probe: Option<&knmstate_api::Probe>, within: Option<Duration>) -> Duration {
    let timeout =
        probe.and_then(|probe| probe.timeout).map_or(DEFAULT_TIMEOUT, knmstate_api::Duration::as_std);
    within.map_or(timeout, |within| timeout.min(within))
}

#[cfg(test)]
mod tests {
    use knmstate_api::probe::{ProbePolicy::*, TcpProbe};
    use serde_json::json;

    use super::*;

    fn document(value: &Value) -> Document {
        value.as_object().cloned().expect("a document is a map")
    }

    fn built_in(which: BuiltInProbe, policy: ProbePolicy) -> knmstate_api::Probe {
        knmstate_api::Probe {
            name: "mine".to_owned(),
            policy,
            built_in: Some(which),
            timeout: "30s".parse().ok(),
            ..Default::default()
        }
    }

    fn registry(policy: ProbePolicy) -> knmstate_api::Probe {
        let tcp = Some(TcpProbe { host: "10.0.0.5".to_owned(), port: 5000 });
        knmstate_api::Probe { name: "registry".to_owned(), policy, tcp, ..Default::default() }
    }

    fn policies(
        ordered: &[knmstate_api::Probe],
        desired: &Document,
        api: ApiAccess,
    ) -> Vec<(String, ProbePolicy)> {
        let probes = select(ordered, desired, api, None).expect("well-formed");
        probes.into_iter().map(|probe| (probe.name, probe.policy)).collect()
    }

    fn expected_policies(rows: &[(&str, ProbePolicy)]) -> Vec<(String, ProbePolicy)> {
        rows.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect()
    }

    #[test]
    fn built_in_probes_count_by_the_connection_to_the_api_server() {
        let nothing = Document::new();
        for (api, expected) in [
            (
                ApiAccess::Connected,
                &[
                    ("api-server", Required),
                    ("node-readiness", Required),
                    ("default-gateway", IfPassingBefore),
                    ("name-servers", IfPassingBefore),
                ][..],
            ),
            (
                ApiAccess::Unreachable,
                &[
                    ("api-server", IfPassingBefore),
                    ("node-readiness", IfPassingBefore),
                    ("default-gateway", IfPassingBefore),
                    ("name-servers", IfPassingBefore),
                ],
            ),
            (ApiAccess::None, &[("default-gateway", IfPassingBefore), ("name-servers", IfPassingBefore)]),
        ] {
            assert_eq!(policies(&[], &nothing, api), expected_policies(expected), "{api:?}");
        }
    }

    #[test]
    fn probes_are_required_for_a_default_gateway_or_name_servers_that_the_change_sets() {
        let route = |route: Value| json!({ "routes": { "config": [route] } });
        let servers = |servers: Value| json!({ "dns-resolver": { "config": { "server": servers } } });
        let v4 = Families { v4: true, v6: false };
        for (desired, gateway, wanted, name_servers) in [
            (json!({}), IfPassingBefore, Families::NONE, IfPassingBefore),
            (
                route(json!({ "destination": "0.0.0.0/0", "next-hop-address": "10.0.0.1" })),
                Required,
                v4,
                IfPassingBefore,
            ),
            (
                route(json!({ "destination": "::/0", "next-hop-address": "fe80::1", "table-id": 254 })),
                Required,
                Families { v4: false, v6: true },
                IfPassingBefore,
            ),
            // Another table, a removed route, an on-link route, a route to another destination.
            (
                route(json!({ "destination": "0.0.0.0/0", "next-hop-address": "10.0.0.1", "table-id": 200 })),
                IfPassingBefore,
                Families::NONE,
                IfPassingBefore,
            ),
            (
                route(
                    json!({ "destination": "0.0.0.0/0", "next-hop-address": "10.0.0.1", "state": "absent" }),
                ),
                IfPassingBefore,
                Families::NONE,
                IfPassingBefore,
            ),
            (
                route(json!({ "destination": "0.0.0.0/0", "next-hop-interface": "tun0" })),
                IfPassingBefore,
                Families::NONE,
                IfPassingBefore,
            ),
            (
                route(json!({ "destination": "10.0.0.0/8", "next-hop-address": "10.0.0.1" })),
                IfPassingBefore,
                Families::NONE,
                IfPassingBefore,
            ),
            (servers(json!(["10.0.0.53"])), IfPassingBefore, Families::NONE, Required),
            (servers(json!([])), IfPassingBefore, Families::NONE, IfPassingBefore),
        ] {
            let desired = document(&desired);
            let probes = select(&[], &desired, ApiAccess::None, None).expect("well-formed");
            assert_eq!(probes[0].policy, gateway, "{desired:?}");
            assert_eq!(probes[0].check, Check::DefaultGateway { wanted }, "{desired:?}");
            assert_eq!(probes[1].policy, name_servers, "{desired:?}");
        }
    }

    #[test]
    fn an_entry_of_the_order_overrides_a_built_in_probe() {
        let route = json!({ "destination": "0.0.0.0/0", "next-hop-address": "10.0.0.1" });
        let desired = document(&json!({
            "routes": { "config": [route] },
            "dns-resolver": { "config": { "server": ["10.0.0.53"] } },
        }));
        for api in [ApiAccess::Connected, ApiAccess::Unreachable] {
            for (position, which) in [
                BuiltInProbe::ApiServer,
                BuiltInProbe::NodeReadiness,
                BuiltInProbe::DefaultGateway,
                BuiltInProbe::NameServers,
            ]
            .into_iter()
            .enumerate()
            {
                for policy in [Required, IfPassingBefore] {
                    let ordered = [built_in(which, policy)];
                    let probes = select(&ordered, &desired, api, None).expect("well-formed");
                    assert_eq!(probes.len(), 4);
                    let probe = &probes[position];
                    assert_eq!((&*probe.name, probe.policy), ("mine", policy), "{which:?}");
                    assert_eq!(probe.timeout, Duration::from_secs(30));
                    if let Check::DefaultGateway { wanted } = probe.check {
                        assert_eq!(wanted.v4, policy == Required);
                    }
                }
                let rest = policies(&[built_in(which, Disabled)], &desired, api);
                assert_eq!(rest.len(), 3, "{which:?} is still selected");
                assert!(rest.iter().all(|(name, _)| name != "mine"));
            }
        }
        let alone = policies(&[built_in(BuiltInProbe::ApiServer, Required)], &desired, ApiAccess::None);
        assert_eq!(alone, expected_policies(&[("default-gateway", Required), ("name-servers", Required)]));
    }

    #[test]
    fn the_probes_of_the_order_come_after_the_built_in_ones() {
        let nothing = Document::new();
        let ordered =
            [registry(IfPassingBefore), built_in(BuiltInProbe::NameServers, Required), registry(Disabled)];
        assert_eq!(
            policies(&ordered, &nothing, ApiAccess::None),
            expected_policies(&[
                ("default-gateway", IfPassingBefore),
                ("mine", Required),
                ("registry", IfPassingBefore)
            ])
        );
    }

    #[test]
    fn no_timeout_is_longer_than_the_deadline_of_all_probes() {
        let nothing = Document::new();
        let mut long = registry(Required);
        long.timeout = "10m".parse().ok();
        for (within, expected) in [
            (None, [120, 30, 600]),
            (Some(60), [60, 30, 60]),
            (Some(300), [120, 30, 300]),
            (Some(10), [10, 10, 10]),
        ] {
            let ordered = [built_in(BuiltInProbe::NameServers, Required), long.clone()];
            let within = within.map(Duration::from_secs);
            let probes = select(&ordered, &nothing, ApiAccess::None, within).expect("well-formed");
            assert_eq!(probes.iter().map(|probe| probe.timeout.as_secs()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_invalid_probe_is_refused() {
        let two =
            knmstate_api::Probe { dns: Some(knmstate_api::probe::DnsProbe::default()), ..registry(Required) };
        let none = knmstate_api::Probe { tcp: None, ..registry(Required) };
        let nothing = Document::new();
        for probe in [two, none] {
            let refusal = select(&[probe], &nothing, ApiAccess::None, None).expect_err("invalid").to_string();
            assert_eq!(
                refusal,
                r#"probe "registry": it must have exactly one of ping, tcp, http, dns, lease and builtIn"#
            );
        }
        let twice = [
            built_in(BuiltInProbe::NameServers, Disabled),
            knmstate_api::Probe { name: "other".to_owned(), ..built_in(BuiltInProbe::NameServers, Required) },
        ];
        let refusal = select(&twice, &nothing, ApiAccess::None, None).expect_err("invalid").to_string();
        assert_eq!(refusal, r#"probe "other": NameServers is listed more than once"#);
    }
}
