//! Rolls a change back from the journal when NetworkManager has lost its checkpoint.
//!
//! The revert is applied through nmstate like any document. That is enough for interfaces that NetworkManager managed
//! before the change. For the others no document can say "stop to manage it": nmstate writes a profile even for an
//! interface that is down. So these first get their old values, then their new profiles are deleted, and the MTU that
//! NetworkManager leaves behind is corrected in the kernel.

use std::{collections::BTreeSet, time::Duration};

use futures::TryStreamExt as _;
use knmstate_document::{NetworkState, Place, interface_name, references, secrets::Scrubber};
use rtnetlink::LinkUnspec;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::as_before::{is_at_rest, looks_as_before};
use super::change::POLL_INTERVAL;
use super::classify::{self, CallPhase};
use super::journal::Entry;
use super::nmstate_calls;
use super::options::NetworkManagerLimits;
use super::service::Service;
use crate::error::HostError;
use crate::host::Operation;

/// The kernel responds at once or not at all.
const KERNEL_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn from_journal(
    service: &Service,
    entry: &Entry,
    limits: &NetworkManagerLimits,
) -> Result<(), HostError> {
    let before = NetworkState::parse(entry.before.clone())?;
    let mut scrubber = Scrubber::default();
    scrubber.learn(&entry.revert);
    let mut revert = nmstate_calls::parse(&to_apply(entry, &before), &scrubber)?;
    revert.set_memory_only(entry.memory_only);
    match timeout(limits.roll_back, Box::pin(revert.apply_async())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(classify::nmstate(&error, CallPhase::Applying, &entry.touched, &scrubber));
        }
        Err(_) => {
            return Err(HostError::Timeout { operation: Operation::RollBack, after: limits.roll_back });
        }
    }
    delete_new_profiles(service, entry).await?;

    // What comes back by itself (link-local addresses, leases) may take a little longer.
    let end = Instant::now() + limits.settle;
    loop {
        let at_rest = is_at_rest(entry, service).await?;
        let now = nmstate_calls::read(limits.observe).await?;
        let shown = nmstate_calls::shown(now.clone())?;
        if at_rest && looks_as_before(entry, &shown) {
            return Ok(());
        }
        if Instant::now() >= end {
            return what_is_left(entry, &now);
        }
        if at_rest {
            restore_mtu(entry, &before, &shown).await?;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// What still differs may come from another program; what the change did is in the revert. As long as the revert is not
/// met, the change counts as open, and its entry stays in the journal.
pub(super) fn what_is_left(entry: &Entry, now: &nmstate::NetworkState) -> Result<(), HostError> {
    let revert = NetworkState::parse(entry.revert.clone())?;
    let document = nmstate_calls::parse(&entry.revert, &Scrubber::default())?;
    match nmstate_calls::difference(&document, now)? {
        Ok(difference) if difference.sections().is_empty() => Ok(()),
        _ => Err(HostError::Failed {
            place: revert
                .first_unmet_in(&nmstate_calls::shown(now.clone())?)
                .map_or_else(Place::document, |unmet| unmet.place),
            why: "it is not as it was before the change, although that was put back".to_owned(),
        }),
    }
}

/// The revert as it has to be applied. Interfaces that existed and were not up are set up, because nmstate sets no
/// values on an interface that is down. In memory, nmstate takes a new controller down and does not detach its ports; a
/// port that stays attached would bring the controller up again, so the ports are detached by name.
fn to_apply(entry: &Entry, before: &NetworkState) -> Value {
    let mut revert = entry.revert.clone();
    let ports_before: BTreeSet<&str> = before.interfaces().flat_map(references::ports).collect();
    for interface in revert.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = interface.get("name").and_then(Value::as_str).unwrap_or_default();
        let (existed, was_port, was_up) =
            (before.interface(name).is_some(), ports_before.contains(name), entry.was_up(name));
        if existed && !was_up {
            interface["state"] = json!("up");
        }
        if existed && !was_port && entry.memory_only {
            interface["controller"] = json!("");
        }
    }
    revert
}

/// Deletes the profiles that were made for interfaces without an active one. NetworkManager would activate them later.
async fn delete_new_profiles(service: &Service, entry: &Entry) -> Result<(), HostError> {
    for profile in service.profiles().await? {
        let Some(name) = &profile.interface else { continue };
        let is_new = !entry.profiles.contains(&profile.uuid);
        if is_new && entry.touched.contains(name) && !entry.was_up(name) {
            service.delete_profile(&profile).await?;
        }
    }
    Ok(())
}

/// NetworkManager gives an interface that it stops to manage the MTU that it found; after a restart, the changed one.
async fn restore_mtu(entry: &Entry, before: &NetworkState, now: &NetworkState) -> Result<(), HostError> {
    for interface in before.interfaces() {
        let name = interface_name(interface);
        let mtu = interface.get("mtu").and_then(Value::as_u64).and_then(|mtu| u32::try_from(mtu).ok());
        let found = now.interface(name).and_then(|interface| interface.get("mtu")).and_then(Value::as_u64);
        if let (Some(mtu), Some(found)) = (mtu, found)
            && entry.touched.iter().any(|touched| touched == name)
            && !entry.was_up(name)
            && found != u64::from(mtu)
        {
            let failed = |why: &dyn std::fmt::Display| HostError::Failed {
                place: Place::interface(name).below("mtu"),
                why: format!("the kernel does not take the MTU that it had before: {why}"),
            };
            match timeout(KERNEL_LIMIT, set_mtu(name, mtu)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(failed(&error)),
                Err(elapsed) => return Err(failed(&elapsed)),
            }
        }
    }
    Ok(())
}

async fn set_mtu(name: &str, mtu: u32) -> Result<(), rtnetlink::Error> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|_| rtnetlink::Error::RequestFailed)?;
    let served = tokio::spawn(connection);
    let set = async {
        let mut links = handle.link().get().match_name(name.to_owned()).execute();
        let Some(link) = links.try_next().await? else { return Ok(()) };
        let message = LinkUnspec::new_with_index(link.header.index).mtu(mtu).build();
        handle.link().set(message).execute().await
    };
    let result = set.await;
    served.abort();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> NetworkState {
        NetworkState::parse(json!({ "interfaces": [
            { "name": "eth0", "state": "up" }, { "name": "eth1", "state": "down" }, { "name": "eth2", "state": "up" },
            { "name": "br0", "state": "up", "bridge": { "port": [{ "name": "eth2" }] } }
        ] }))
        .expect("a state")
    }

    fn applied(memory_only: bool) -> Value {
        let revert = json!({ "interfaces": [
            { "name": "eth0", "state": "up", "mtu": 1500 },
            { "name": "eth1", "state": "down", "mtu": 1500 },
            { "name": "eth2", "state": "up", "mtu": 1500 },
            { "name": "br1", "state": "absent" }
        ] });
        to_apply(&Entry { before: before().into_value(), revert, memory_only, ..Entry::default() }, &before())
    }

    #[test]
    fn interfaces_that_existed_and_were_not_up_are_set_up() {
        let expected = json!({ "interfaces": [
            { "name": "eth0", "state": "up", "mtu": 1500 },
            { "name": "eth1", "state": "up", "mtu": 1500 },
            { "name": "eth2", "state": "up", "mtu": 1500 },
            { "name": "br1", "state": "absent" }
        ] });
        assert_eq!(applied(false), expected);
    }

    #[test]
    fn in_memory_new_ports_are_detached_and_old_ports_stay() {
        let expected = json!({ "interfaces": [
            { "name": "eth0", "state": "up", "mtu": 1500, "controller": "" },
            { "name": "eth1", "state": "up", "mtu": 1500, "controller": "" },
            { "name": "eth2", "state": "up", "mtu": 1500 },
            { "name": "br1", "state": "absent" }
        ] });
        assert_eq!(applied(true), expected);
    }
}
