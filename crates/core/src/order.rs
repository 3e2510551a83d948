//! The order for one node, made from a policy.

use knmstate_api::{
    Mode, NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationPolicySpec, Permit, State,
};

/// The policy that an order is made from.
#[derive(Clone, Copy, Debug)]
pub struct OrderSource<'a> {
    pub name: &'a str,
    /// `None` for a policy that has none, such as one from a directory.
    pub uid: Option<&'a str>,
    pub generation: i64,
}

/// The order for a node. `desired` is the desired state of the policy with the values of that node filled in. The permit
/// of a policy in Plan mode is always `Wait`.
pub fn order(
    node: &str,
    source: OrderSource<'_>,
    policy: &NodeNetworkConfigurationPolicySpec,
    desired: Option<State>,
    permit: Permit,
) -> NodeNetworkConfigurationEnactmentSpec {
    NodeNetworkConfigurationEnactmentSpec {
        node_name: node.to_owned(),
        policy_name: source.name.to_owned(),
        policy_uid: source.uid.map(str::to_owned),
        policy_generation: source.generation,
        permit: if policy.mode == Mode::Plan { Permit::Wait } else { permit },
        permit_time: None,
        mode: policy.mode,
        desired_state: desired,
        capture: policy.capture.clone(),
        probes: policy.probes.clone(),
        deadlines: None,
        drift: policy.drift,
        on_delete: policy.on_delete,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_order_has_everything_that_a_node_needs() {
        let policy: NodeNetworkConfigurationPolicySpec = serde_json::from_value(json!({
            "capture": {"gw": "routes.running.destination==\"0.0.0.0/0\""},
            "desiredState": {"interfaces": []},
            "probes": [{"name": "p", "tcp": {"host": "h", "port": 1}}],
            "drift": "Correct",
            "onDelete": "Restore",
        }))
        .unwrap();
        let source = OrderSource { name: "p", uid: Some("u"), generation: 3 };
        let order = order("n", source, &policy, policy.desired_state.clone(), Permit::Apply);
        let expected = json!({
            "nodeName": "n", "policyName": "p", "policyUID": "u", "policyGeneration": 3, "permit": "Apply",
            "desiredState": {"interfaces": []},
            "capture": {"gw": "routes.running.destination==\"0.0.0.0/0\""},
            "probes": [{"name": "p", "tcp": {"host": "h", "port": 1}}],
            "drift": "Correct", "onDelete": "Restore",
        });
        assert_eq!(serde_json::to_value(order).unwrap(), expected);
    }

    #[test]
    fn a_plan_permits_nothing() {
        let policy = NodeNetworkConfigurationPolicySpec { mode: Mode::Plan, ..Default::default() };
        let source = OrderSource { name: "p", uid: None, generation: 1 };
        assert_eq!(order("n", source, &policy, None, Permit::Apply).permit, Permit::Wait);
    }
}
