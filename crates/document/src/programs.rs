//! Keys by which a document runs programs as root on the machine.

use serde_json::Value;

use crate::{Document, Place, interface_name, interfaces};

/// Why dispatch scripts are refused, and how to allow them.
pub const DISPATCH_NOT_ALLOWED: &str = "the scripts would run as root on the node, and that is not allowed here. To \
    allow it, set NMState.spec.allowDispatchScripts to true, or start knmstate with --allow-dispatch-scripts where \
    there is no NMState";

/// The first interface with a dispatch script that it does not have in the `current` state. Empty scripts only remove
/// what is there, and do not count.
pub fn first_new_dispatch_script(desired: &Document, current: &Document) -> Option<Place> {
    let is_new = |interface: &&Document| {
        let known = interfaces(current).find(|known| interface_name(known) == interface_name(interface));
        let known = known.and_then(|known| known.get("dispatch"));
        match interface.get("dispatch") {
            None | Some(Value::Null) => false,
            Some(Value::Object(scripts)) => scripts.iter().any(|(event, script)| {
                !script.is_null() && script != "" && known.and_then(|known| known.get(event)) != Some(script)
            }),
            // Not understood, or an expression that is not resolved yet.
            Some(_) => true,
        }
    };
    interfaces(desired)
        .find(is_new)
        .map(|interface| Place::interface(interface_name(interface)).below("dispatch"))
}

/// The first value for libreswan that has a line break. Versions of NetworkManager's plugin write it as it is into the
/// configuration of libreswan, where the next line may name a program that runs as root.
pub fn first_libreswan_line_break(document: &Document) -> Option<Place> {
    interfaces(document).find_map(|interface| {
        let options = interface.get("libreswan")?.as_object()?;
        let has_line_break = |value: &Value| value.as_str().is_some_and(|text| text.contains(['\n', '\r']));
        let (key, _) = options.iter().find(|(_, value)| has_line_break(value))?;
        Some(Place::interface(interface_name(interface)).below("libreswan").below(key))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(interface: &Value) -> Document {
        let document = json!({ "interfaces": [{ "name": "eth0", "mtu": 1500 }, interface] });
        document.as_object().unwrap().clone()
    }

    #[test]
    fn a_new_script_is_found_and_the_removal_of_one_is_none() {
        let eth1 = |dispatch: &Value| document(&json!({ "name": "eth1", "dispatch": dispatch }));
        let other = document(&json!({ "name": "eth2", "dispatch": { "post-activation": "touch /x" } }));
        let known = eth1(&json!({ "post-activation": "touch /x" }));
        for (dispatch, is_new, is_new_beside_known) in [
            (json!({ "post-activation": "touch /x" }), true, false),
            (json!({ "post-activation": "touch /x", "post-deactivation": "" }), true, false),
            (json!({ "post-activation": "touch /x\n" }), true, true),
            (json!({ "post-deactivation": "touch /x" }), true, true),
            (json!({ "post-activation": "", "post-deactivation": "x" }), true, true),
            (json!("{{ capture.c.interfaces.0.dispatch }}"), true, true),
            (json!({ "post-activation": 7 }), true, true),
            (json!({ "post-activation": "", "post-deactivation": null }), false, false),
            (json!({}), false, false),
            (Value::Null, false, false),
        ] {
            let desired = eth1(&dispatch);
            for (current, expected) in
                [(&Document::new(), is_new), (&other, is_new), (&known, is_new_beside_known)]
            {
                let place = first_new_dispatch_script(&desired, current).map(|place| place.to_string());
                assert_eq!(place, expected.then(|| "interfaces[eth1].dispatch".to_owned()), "{dispatch}");
            }
        }
    }

    #[test]
    fn a_value_for_libreswan_is_one_line() {
        for (options, expected) in [
            (json!({ "left": "192.0.2.1", "leftid": "%fromcert", "dpddelay": 7 }), None),
            (json!({ "leftid": "x\n leftupdown=/x" }), Some("interfaces[hosta].libreswan.leftid")),
            (json!({ "psk": "x\ry" }), Some("interfaces[hosta].libreswan.psk")),
        ] {
            let desired = document(&json!({ "name": "hosta", "libreswan": options }));
            let place = first_libreswan_line_break(&desired).map(|place| place.to_string());
            assert_eq!(place.as_deref(), expected, "{options}");
        }
    }
}
