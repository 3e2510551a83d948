//! Probes over real sockets, on the loopback of this machine.

use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe};
use knmstate_core::probes::NameServer;
use tokio::net::TcpListener;

use super::{super::dns::responder::Responder, *};

#[tokio::test]
async fn a_gateway_is_pinged_before_and_after() {
    let machine = machine(&default_route("127.0.0.1", "lo"));
    let prober = prober(&machine);
    let check = Check::DefaultGateway { wanted: Families::NONE };
    let probes = [probe("default-gateway", check, ProbePolicy::IfPassingBefore)];
    let baseline = prober.baseline(&probes, &machine.state()).await;
    assert_eq!(outcomes(&baseline.results()), [("default-gateway", Some(Passed), None)]);
    let results = prober.after(&probes, &baseline, DEADLINE).await.expect("it still responds");
    assert_eq!(outcomes(&results), [("default-gateway", Some(Passed), Some(Passed))]);

    machine.change_behind_your_back(&no_default_route()).expect("a change");
    let begun = Instant::now();
    let failed = prober.after(&probes, &baseline, DEADLINE).await.expect_err("it is gone");
    assert!(failed.cannot_pass && failed.message.contains("(before: 127.0.0.1 on lo)"), "{failed:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn names_are_resolved_by_the_current_servers_of_the_node() {
    let server = Responder::start("127.0.0.1").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let resolver = json!({ "server": ["127.0.0.1"], "search": ["example"] });
    let machine = machine(&json!({ "dns-resolver": { "config": resolver } }));
    let mut prober = prober(&machine);
    prober.runner.dns_port = server.port();

    let tcp = |host: &str| Check::Tcp(TcpProbe { host: host.to_owned(), port });
    let dns = |name: &str, server: Option<&str>| {
        Check::Dns(DnsProbe { name: name.to_owned(), server: server.map(str::to_owned) })
    };
    let http = |url: String| Check::Http(HttpProbe { url, ..Default::default() });
    let ping = |host: &str| Check::Ping(PingProbe { host: host.to_owned(), interface: None });
    let closed_port = format!("http://a.example:{}/", server.port());
    for (name, check, why) in [
        ("servers", Check::NameServers, None),
        ("tcp", tcp("a.example"), None),
        ("searched", tcp("registry"), None),
        ("ping", ping("a.example"), None),
        ("by-address", ping("::1"), None),
        ("dns", dns("a.example", None), None),
        ("dns-of-one", dns("a.example", Some("127.0.0.1")), None),
        (
            "missing",
            dns("missing.example", None),
            Some("looking up missing.example: 127.0.0.1: it has no address for missing.example"),
        ),
        ("broken", dns("broken.example", Some("127.0.0.1")), Some("server failure (SERVFAIL)")),
        ("refused", http(closed_port), Some("127.0.0.1: connection refused")),
        (
            "no-url",
            http("gopher://a.example".to_owned()),
            Some("not a URL that begins with http:// or https://"),
        ),
        (
            "no-link",
            Check::Ping(PingProbe { host: "127.0.0.1".to_owned(), interface: Some("eth7".to_owned()) }),
            Some("there is no interface eth7"),
        ),
    ] {
        let probes = [required(name, check)];
        let result = prober.baseline(&probes, &machine.state()).await.results().remove(0);
        assert_eq!(result.message, why.unwrap_or_default(), "{name}");
        assert_eq!(result.before, Some(if why.is_some() { Bad } else { Passed }), "{name}");
    }
    prober.runner.dns_host = "broken.example".to_owned();
    let probes = [required("name-servers", Check::NameServers)];
    let result = prober.baseline(&probes, &machine.state()).await.results().remove(0);
    assert_eq!(result.message, "127.0.0.1: server failure (SERVFAIL)");
}

#[tokio::test]
async fn one_name_server_that_responds_is_enough() {
    let server = Responder::start("127.0.0.1").await;
    let resolver = json!({ "server": ["127.0.0.2", "127.0.0.1"] });
    let machine = machine(&json!({ "dns-resolver": { "config": resolver } }));
    let mut prober = prober(&machine);
    prober.runner.dns_port = server.port();
    let probes = [required("name-servers", Check::NameServers)];
    let results = prober.after(&probes, &Baseline::default(), DEADLINE).await.expect("one responds");
    assert_eq!(outcomes(&results), [("name-servers", None, Some(Passed))]);

    server.stop().await;
    let failed =
        prober.after(&probes, &Baseline::default(), Duration::from_secs(1)).await.expect_err("none does");
    assert_eq!(
        failed.message,
        r#"probe "name-servers" failed: no answer within 1 s; last: 127.0.0.2: connection refused; 127.0.0.1: connection refused"#
    );
}

/// In an empty network namespace.
#[test]
fn every_probe_reports_a_missing_route() {
    let alone = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("root may create network namespaces");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let address = std::net::IpAddr::from([192, 0, 2, 1]);
            let server = NameServer { address, interface: None };
            let api =
                KubeApiEndpoint::new(kube::Config::new(::http::Uri::from_static("http://192.0.2.1")), "node");
            for (probe, error) in [
                ("ping", ping::echo(address, None).await.err()),
                ("tcp", tcp::connect((address, 80).into()).await.err()),
                ("dns", dns::query(&server, 53, "a.example", simple_dns::TYPE::A).await.err()),
                ("api", api.reach().await.err()),
                ("node", api.node().await.err()),
            ] {
                assert!(error.as_ref().is_some_and(|error| error.no_route), "{probe}: {error:?}");
            }
        });
    });
    alone.join().expect("all probes reported it");
}
