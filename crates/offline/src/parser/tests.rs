use proptest::prelude::*;

use super::*;

#[test]
fn the_mistake_is_found_wherever_it_is() {
    for (document, place) in [
        (json!({ "interfaces": [], "interfacs": [] }), "interfacs"),
        (
            json!({ "interfaces": [{ "name": "eth0" }, { "name": "eth1", "type": "ethernet", "mtuu": 1400 }] }),
            "interfaces[eth1].mtuu",
        ),
        (
            json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "ipv4": { "address": [
                { "ip": "10.0.0.1", "prefix-length": 24 }, { "ip": "10.0.0.300", "prefix-length": 24 }
            ] } }] }),
            "interfaces[eth1].ipv4.address[1]",
        ),
        (
            json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": "many", "ipv4": { "dhcpp": true } }] }),
            "interfaces[eth1]",
        ),
        (
            json!({ "routes": { "config": [{ "destination": "10.0.0.0/8" }, { "metric": "low" }] } }),
            "routes.config[1].metric",
        ),
        (json!({ "dns-resolver": { "config": { "server": "1.1.1.1" } } }), "dns-resolver.config.server"),
    ] {
        assert!(!is_understood(document.clone()), "this is no mistake: {document}");
        assert_eq!(find(&document).to_string(), place, "{document}");
    }
}

#[test]
fn an_interface_may_be_named_without_its_type() {
    let state = |document: Value| NetworkState::parse(document).expect("a state");
    let current = state(json!({ "interfaces": [{ "name": "eth1", "type": "veth" }] }));
    let find = |desired: Value| find_with_types(&state(desired), &current).map(|place| place.to_string());
    let wrong = json!({ "interfaces": [{ "name": "eth1", "mtuu": 1400 }] });
    assert!(is_understood(wrong.clone()), "without the type, nmstate takes it");
    assert_eq!(find(wrong).as_deref(), Some("interfaces[eth1].mtuu"));
    assert_eq!(find(json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] })), None);
}

/// The routes of a large policy; the last one has a mistake.
fn many_routes(count: u32) -> Value {
    let mut routes: Vec<Value> = (0..count)
        .map(|index| {
            let [_, a, b, c] = index.to_be_bytes();
            json!({ "destination": format!("10.{a}.{b}.{c}/32"), "next-hop-interface": "eth1",
                "next-hop-address": "192.0.2.1", "table-id": 254 })
        })
        .collect();
    if let Some(last) = routes.last_mut() {
        last["metrik"] = json!(1);
    }
    json!({ "routes": { "config": routes } })
}

#[test]
fn a_mistake_in_the_last_of_many_routes_takes_little_work() {
    let document = many_routes(5000);
    let work = Work::default();
    assert_eq!(find_within(&document, &work).to_string(), "routes.config[4999].metrik");
    let parsed = (MOST_WORK - work.0.get()) / size(&document);
    assert!(parsed < 10, "{parsed} times the document");
}

#[test]
fn without_room_for_more_work_the_place_is_above_the_mistake() {
    let document = many_routes(1000);
    let mut places: Vec<String> = (0..12)
        .map(|documents| find_within(&document, &Work(Cell::new(documents * size(&document)))).to_string())
        .collect();
    places.dedup();
    assert_eq!(
        places,
        ["the document", "routes", "routes.config", "routes.config[999]", "routes.config[999].metrik"]
    );
    // Each of many keys is wrong, so that none alone is the mistake.
    let keys: Map<String, Value> = (0..100_000).map(|index| (format!("key{index}"), json!(1))).collect();
    let wrong = json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "ipv4": keys }] });
    let work = Work::default();
    assert_eq!(find_within(&wrong, &work).to_string(), "interfaces[eth1].ipv4");
    assert_eq!(work.0.get(), 0, "it stops there");
    assert_eq!(work.parse(&json!({})), Err(TooMuchWork));
}

/// The search without bisection and without a limit.
fn find_one_by_one(document: &Value) -> Place {
    fn descend(value: &Value, place: Place, is_understood: &dyn Fn(Value) -> bool) -> Place {
        let culprit = match value {
            Value::Object(map) => map.iter().filter(|(key, _)| *key != "type").find_map(|(key, below)| {
                let with = |below: Option<Value>| is_understood(Value::Object(replaced(map, key, below)));
                with(None).then(|| descend(below, place.below(key), &|below| with(Some(below))))
            }),
            Value::Array(entries) => entries.iter().enumerate().find_map(|(index, below)| {
                let with = |below: Option<Value>| {
                    is_understood(Value::Array(without(entries, index..index + 1, below)))
                };
                with(None).then(|| descend(below, place.entry(index), &|below| with(Some(below))))
            }),
            _ => None,
        };
        culprit.unwrap_or(place)
    }
    for (section, value) in document.as_object().into_iter().flatten() {
        let alone = |value: Value| is_understood(json!({ section: value }));
        if alone(value.clone()) {
            continue;
        }
        let Value::Array(entries) = value else { return descend(value, Place::key(section), &alone) };
        let wrong = entries.iter().find(|entry| !alone(json!([entry])));
        return match wrong {
            Some(entry) => {
                let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
                descend(entry, Place::interface(name), &|entry| alone(json!([entry])))
            }
            None => Place::key(section),
        };
    }
    Place::document()
}

/// A list in which most entries are right.
fn list(right: Value, wrong: &[Value]) -> impl Strategy<Value = Value> + use<> {
    let entry = prop_oneof![6 => Just(right), 1 => prop::sample::select(wrong.to_vec())];
    prop::collection::vec(entry, 0..9).prop_map(Value::Array)
}

fn documents() -> impl Strategy<Value = Value> {
    let routes = list(
        json!({ "destination": "10.0.0.0/8", "next-hop-interface": "eth1" }),
        &[json!({ "metrik": 1 }), json!({ "metric": "low" }), json!({ "state": "gone", "x": 1 }), json!(7)],
    );
    let rules =
        list(json!({ "ip-from": "10.0.0.0/8" }), &[json!({ "priority": "first" }), json!({ "from": 1 })]);
    let servers = list(json!("192.0.2.53"), &[json!(53), json!({ "ip": "192.0.2.53" })]);
    let addresses = || {
        list(
            json!({ "ip": "192.0.2.1", "prefix-length": 24 }),
            &[json!({ "ip": "192.0.2.300", "prefix-length": 24 }), json!({ "ip": "192.0.2.1" }), json!([])],
        )
    };
    let ports = list(
        json!({ "name": "eth1", "vlan": { "mode": "access", "tag": 7 } }),
        &[json!({ "nam": "eth1" }), json!({ "name": "eth2", "vlan": { "mode": "sideways" } })],
    );
    let interface =
        (addresses(), addresses(), ports, any::<bool>(), 0..4).prop_map(|(v4, v6, ports, dhcpp, which)| {
            let mut interface = json!({ "name": "br1", "type": "linux-bridge", "ipv4": { "address": v4 },
                "ipv6": { "address": v6 }, "bridge": { "port": ports } });
            if dhcpp && which == 0 {
                interface["ipv4"]["dhcpp"] = json!(true);
            }
            interface
        });
    (routes, rules, servers, prop::collection::vec(interface, 0..4)).prop_map(
        |(routes, rules, servers, interfaces)| {
            json!({ "interfaces": interfaces, "routes": { "config": routes }, "route-rules": { "config": rules },
                "dns-resolver": { "config": { "server": servers, "search": [] } } })
        },
    )
}

proptest! {
    #[test]
    fn bisection_finds_what_a_search_one_by_one_finds(document in documents()) {
        if !is_understood(document.clone()) {
            prop_assert_eq!(find(&document), find_one_by_one(&document), "{}", document);
        }
    }
}
