//! Thousands of machines in one process. A binary of its own, because it looks at the memory of the process.

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use knmstate_document::NetworkState;
    use knmstate_host::{Host, HostError};
    use knmstate_simulated_host::SimulatedMachine;
    use serde_json::{Value, json};
    use tokio::task::JoinSet;

    const MACHINES: usize = 5_000;
    const DEADLINE: Duration = Duration::from_hours(1);

    fn state(document: Value) -> NetworkState {
        NetworkState::parse(document).expect("a document of the right shape")
    }

    fn build(number: usize) -> SimulatedMachine {
        let initial = json!({
            "interfaces": [{ "name": "eth0", "ipv4": {
                "enabled": true,
                "address": [{ "ip": format!("10.{}.{}.10", number / 256, number % 256), "prefix-length": 8 }]
            }}],
            "routes": { "config": [
                { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "10.255.255.254" }
            ]}
        });
        let builder = SimulatedMachine::builder(format!("node-{number}")).nic("eth0").nic("eth1").nic("eth2");
        builder.initially(state(initial)).build().expect("the machine boots")
    }

    fn bond_and_vlan(number: usize) -> NetworkState {
        state(json!({ "interfaces": [
            {
                "name": "bond0", "type": "bond", "state": "up",
                "link-aggregation": { "mode": "active-backup", "port": ["eth1", "eth2"] }
            },
            {
                "name": "bond0.100", "type": "vlan", "state": "up", "vlan": { "base-iface": "bond0", "id": 100 },
                "ipv4": {
                    "enabled": true,
                    "address": [{ "ip": format!("172.16.{}.{}", number / 250, number % 250 + 1), "prefix-length": 16 }]
                }
            }
        ]}))
    }

    /// Resident memory of this process in bytes.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line about memory");
        let kilobytes: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kilobytes * 1024
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn five_thousand_machines_are_changed_in_one_process_each_to_its_own_state() {
        let empty = resident();
        let machines: Vec<_> = (0..MACHINES).map(build).collect();
        let idle = resident().saturating_sub(empty) / MACHINES;
        assert!(idle < 32 * 1024, "an idle machine takes {idle} bytes");

        // Every third is rolled back, every fifth of the others is left to crash with its change open.
        let mut agents = JoinSet::new();
        for (number, machine) in machines.iter().enumerate() {
            let host = machine.host();
            agents.spawn(async move {
                let checkpoint = host.begin(&bond_and_vlan(number), DEADLINE).await?;
                match number % 15 {
                    n if n % 3 == 0 => host.roll_back(&checkpoint).await,
                    n if n % 5 == 0 => Ok(()),
                    _ => host.commit(&checkpoint).await,
                }
            });
        }
        let results: Vec<Result<(), HostError>> = agents.join_all().await;
        assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));

        for (number, machine) in machines.iter().enumerate() {
            let (rolled_back, left_open) = (number % 3 == 0, number % 3 != 0 && number % 5 == 0);
            let desired = bond_and_vlan(number);
            assert_eq!(desired.first_unmet_in(&machine.state()).is_some(), rolled_back, "machine {number}");
            let open = machine.host().open_checkpoints().await.expect("answers");
            assert_eq!(open.len(), usize::from(left_open), "machine {number}");
        }
        // No machine has another one's state.
        let address = |machine: &SimulatedMachine| {
            machine.state().interface("eth0").map(|eth0| eth0["ipv4"].to_string())
        };
        let distinct: std::collections::BTreeSet<_> = machines.iter().map(address).collect();
        assert_eq!(distinct.len(), MACHINES);
    }
}
