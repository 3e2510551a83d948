//! Messages about probes that failed.

use std::time::Duration;

use super::Check;

/// How a probe failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeFailureKind {
    /// It can no longer pass; known after this time.
    CannotPass { after: Duration },
    /// It did not pass within this time.
    TimedOut { within: Duration },
}

/// The target of a probe of the order, such as `tcp 10.0.0.5:5000`; empty for built-in probes, whose targets depend on the
/// node.
pub fn target(check: &Check) -> String {
    match check {
        Check::ApiServer | Check::NodeReadiness | Check::DefaultGateway { .. } | Check::NameServers => {
            String::new()
        }
        Check::Ping(ping) => match &ping.interface {
            Some(interface) => format!("ping {} from {interface}", ping.host),
            None => format!("ping {}", ping.host),
        },
        Check::Tcp(tcp) if tcp.host.contains(':') => format!("tcp [{}]:{}", tcp.host, tcp.port),
        Check::Tcp(tcp) => format!("tcp {}:{}", tcp.host, tcp.port),
        Check::Http(http) => format!("http {}", without_user(&http.url)),
        Check::Dns(dns) => match &dns.server {
            Some(server) => format!("dns {} from {server}", dns.name),
            None => format!("dns {}", dns.name),
        },
        Check::Lease(lease) => lease.to_string(),
    }
}

/// A URL without user name and password, which must not appear in messages.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The message about a probe that failed: its name, its target, when it failed, and why.
pub fn failure_message(
    name: &str,
    check: &Check,
    target: &str,
    failure: &ProbeFailureKind,
    why: &str,
) -> String {
    let about = if target.is_empty() { String::new() } else { format!(" ({target})") };
    match failure {
        ProbeFailureKind::CannotPass { after } => {
            format!("probe {name:?}{about} failed {} after the change: {why}", seconds(*after))
        }
        ProbeFailureKind::TimedOut { within } => {
            let what = match check {
                Check::NodeReadiness => "not ready",
                Check::Lease(_) => "no address",
                _ => "no answer",
            };
            let last = if why.is_empty() { String::new() } else { format!("; last: {why}") };
            format!("probe {name:?}{about} failed: {what} within {}{last}", seconds(*within))
        }
    }
}

pub(super) fn seconds(time: Duration) -> String {
    let tenths = (time.as_millis() + 50) / 100;
    if tenths.is_multiple_of(10) {
        format!("{} s", tenths / 10)
    } else {
        format!("{}.{} s", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe, TcpProbe};

    use super::*;
    use crate::probes::Families;

    #[test]
    fn a_failure_names_the_probe_its_target_the_time_and_the_reason() {
        let gateway = Check::DefaultGateway { wanted: Families::NONE };
        let tcp = Check::Tcp(TcpProbe { host: "10.0.0.5".to_owned(), port: 5000 });
        let cannot_pass =
            |milliseconds| ProbeFailureKind::CannotPass { after: Duration::from_millis(milliseconds) };
        let timed_out = |seconds| ProbeFailureKind::TimedOut { within: Duration::from_secs(seconds) };
        for (name, check, target, failure, why, expected) in [
            (
                "default-gateway",
                &gateway,
                "192.0.2.1 on eth0",
                cannot_pass(1149),
                "no default route is left",
                r#"probe "default-gateway" (192.0.2.1 on eth0) failed 1.1 s after the change: no default route is left"#,
            ),
            (
                "default-gateway",
                &gateway,
                "",
                cannot_pass(1999),
                "no default route is left",
                r#"probe "default-gateway" failed 2 s after the change: no default route is left"#,
            ),
            (
                "registry",
                &tcp,
                &*target(&tcp),
                timed_out(120),
                "connection refused",
                r#"probe "registry" (tcp 10.0.0.5:5000) failed: no answer within 120 s; last: connection refused"#,
            ),
            (
                "node-readiness",
                &Check::NodeReadiness,
                "",
                ProbeFailureKind::TimedOut { within: Duration::from_millis(1500) },
                "",
                r#"probe "node-readiness" failed: not ready within 1.5 s"#,
            ),
        ] {
            assert_eq!(failure_message(name, check, target, &failure, why), expected);
        }
    }

    #[test]
    fn a_target_has_no_password() {
        let http = |url: &str| Check::Http(HttpProbe { url: url.to_owned(), ..Default::default() });
        let interface = Some("eth1".to_owned());
        let server = Some("10.0.0.53".to_owned());
        for (check, shown) in [
            (Check::ApiServer, ""),
            (Check::Ping(PingProbe { host: "10.0.0.1".to_owned(), interface: None }), "ping 10.0.0.1"),
            (Check::Ping(PingProbe { host: "fe80::1".to_owned(), interface }), "ping fe80::1 from eth1"),
            (Check::Tcp(TcpProbe { host: "fd00::5".to_owned(), port: 443 }), "tcp [fd00::5]:443"),
            (http("https://me:hush@registry/v2?a=b@c"), "http https://registry/v2?a=b@c"),
            (http("http://10.0.0.1:8080"), "http http://10.0.0.1:8080"),
            (http("http://hush@10.0.0.1"), "http http://10.0.0.1"),
            (Check::Dns(DnsProbe { name: "a.example".to_owned(), server: None }), "dns a.example"),
            (Check::Dns(DnsProbe { name: "a.example".to_owned(), server }), "dns a.example from 10.0.0.53"),
        ] {
            assert_eq!(target(&check), shown);
        }
    }
}
