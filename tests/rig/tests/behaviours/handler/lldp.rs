//! Switches that announce themselves by LLDP.

use anyhow::Result;
use rig::{
    Lab,
    process::{Invocation, Process},
    wait,
};
use serde_json::json;

use super::{HandlerFixture, SHORT_LIMIT};
use crate::standalone::shown;

/// The multicast address that LLDP frames are sent to, and their EtherType.
const NEAREST_BRIDGE: &[u8] = &[0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
const LLDP: &[u8] = &[0x88, 0xcc];

/// Sends a frame on an interface twice a second. Arguments: the interface's index, the frame, the multicast address.
const SENDER: &str = r#"
sub bytes { pack("C*", split(" ", shift)) }
my ($index, $frame, $group) = @ARGV;
socket(my $socket, 17, 3, 0) or die "socket: $!";
my $to = pack("SnlSCCa8", 17, 0x88cc, $index, 1, 0, 6, bytes($group));
while (send($socket, bytes($frame), 0, $to)) { select(undef, undef, undef, 0.5) }
die "send: $!";
"#;

/// A switch on the back segment that announces its name until this is dropped. `seconds` is its time to live.
async fn switch(lab: &Lab, name: &str, seconds: u16) -> Result<Process> {
    let links = lab.network().run(["ip", "-j", "link", "show", "back"]).await?.json()?;
    let sender = Invocation::new(["perl", "-e", SENDER]).args([
        links[0]["ifindex"].to_string(),
        numbers(&frame(name, seconds)?),
        numbers(NEAREST_BRIDGE),
    ]);
    lab.network().enter(sender).start(name, &lab.directory().join(format!("{name}.log")))
}

fn frame(name: &str, seconds: u16) -> Result<Vec<u8>> {
    let part =
        |kind: u8, value: &[u8]| anyhow::Ok([&[kind << 1, u8::try_from(value.len())?], value].concat());
    let own_address = [0x02, 0x99, 0, 0, 0, 0x99];
    Ok([
        NEAREST_BRIDGE,
        &own_address,
        LLDP,
        &part(1, &[&[4], &own_address[..]].concat())?,
        &part(2, b"\x05port-7")?,
        &part(3, &seconds.to_be_bytes())?,
        &part(5, name.as_bytes())?,
        &part(0, &[])?,
    ]
    .concat())
}

fn numbers(bytes: &[u8]) -> String {
    bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn lldp_neighbours_are_in_the_node_state() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    let listening = json!({"interfaces": [
        {"name": "eth1", "type": "ethernet", "state": "up", "lldp": {"enabled": true}},
    ]});
    fixture.order("lldp", "Apply", &listening, &json!({})).await?;
    let status = fixture.settled("lldp").await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");

    let first = switch(&fixture.lab, "switch-a", 120).await?;
    fixture.until_reported("switch-a", SHORT_LIMIT).await?;
    fixture.until_reported("port-7", SHORT_LIMIT).await?;
    drop(first);
    // Another switch with the same address takes its place, and then announces its shutdown.
    let second = switch(&fixture.lab, "switch-b", 120).await?;
    fixture.until_reported("switch-b", SHORT_LIMIT).await?;
    drop(second);
    let _shutdown = switch(&fixture.lab, "switch-b", 0).await?;
    wait::until(SHORT_LIMIT, "the neighbour to be removed", async || {
        let status = serde_json::to_string(&fixture.states.get(super::NODE).await?.status)?;
        anyhow::ensure!(!status.contains("switch-"), "{status}");
        Ok(())
    })
    .await?;
    assert_eq!(fixture.settled("lldp").await?, status, "the status of the order has changed");
    Ok(())
}
