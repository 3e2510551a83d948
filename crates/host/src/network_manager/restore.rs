//! Putting the machine back when NetworkManager has forgotten how.
//!
//! The revert goes through nmstate like any document. That is enough for interfaces that NetworkManager had in its
//! hands before. For those that it had not, no document can say "let go of it again": nmstate writes a profile even
//! for an interface that is down. So these are brought to their old values first, then what was written for them is
//! deleted, and what NetworkManager leaves behind when it lets go is put right in the kernel.

use std::time::Duration;

use futures::TryStreamExt as _;
use rtnetlink::LinkUnspec;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::as_before::{is_at_rest, looks_as_before};
use super::classify::{self, Stage};
use super::engine;
use super::journal::Entry;
use super::options::Limits;
use super::service::Service;
use super::transaction::LOOK_AGAIN;
use crate::error::{HostError, Place};
use crate::host::Operation;
use crate::secrets::Scrubber;
use crate::state::{NetworkState, interface_name};

/// The kernel answers at once, or not at all.
const KERNEL_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn from_note(service: &Service, entry: &Entry, limits: &Limits) -> Result<(), HostError> {
    let before = NetworkState::parse(entry.before.clone())?;
    let mut scrubber = Scrubber::default();
    scrubber.learn(&entry.revert);
    let mut revert = engine::parse(&raised(entry, &before), &scrubber)?;
    revert.set_memory_only(entry.memory_only);
    match timeout(limits.roll_back, Box::pin(revert.apply_async())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(classify::nmstate(&error, Stage::Applying, &entry.touched, &scrubber));
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
        let now = engine::read(limits.observe).await?;
        let shown = engine::shown(now.clone())?;
        if at_rest && looks_as_before(entry, &shown) {
            return Ok(());
        }
        if Instant::now() >= end {
            return what_is_left(entry, &now);
        }
        if at_rest {
            restore_mtu(entry, &before, &shown).await?;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// What still differs may be somebody else's doing; what the change did is in the revert. As long as that is not met,
/// the change counts as open, and its note stays.
pub(super) fn what_is_left(entry: &Entry, now: &nmstate::NetworkState) -> Result<(), HostError> {
    let revert = NetworkState::parse(entry.revert.clone())?;
    let document = engine::parse(&entry.revert, &Scrubber::default())?;
    match engine::difference(&document, now)? {
        Ok(difference) if difference.sections().is_empty() => Ok(()),
        _ => Err(HostError::Failed {
            place: revert
                .first_unmet_in(&engine::shown(now.clone())?)
                .map_or_else(Place::document, |unmet| unmet.place),
            why: "it is not as it was before the change, although that was put back".to_owned(),
        }),
    }
}

/// The revert, with those interfaces up that were there and not up: only so are their values set.
fn raised(entry: &Entry, before: &NetworkState) -> Value {
    let mut revert = entry.revert.clone();
    for interface in revert.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = interface.get("name").and_then(Value::as_str).unwrap_or_default();
        if before.interface(name).is_some() && !entry.was_up(name) {
            interface["state"] = json!("up");
        }
    }
    revert
}

/// Profiles that were made for interfaces that had none in force. NetworkManager would bring them up some day.
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

/// NetworkManager gives an interface that it lets go the MTU that it found; a restarted one found the changed one.
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

    #[test]
    fn only_what_was_there_and_not_up_is_raised() {
        let before = NetworkState::parse(json!({ "interfaces": [
            { "name": "eth0", "state": "up" }, { "name": "eth1", "state": "down" }
        ] }))
        .expect("a state");
        let revert = json!({ "interfaces": [
            { "name": "eth0", "state": "up", "mtu": 1500 },
            { "name": "eth1", "state": "down", "mtu": 1500 },
            { "name": "br1", "state": "absent" }
        ] });
        let expected = json!({ "interfaces": [
            { "name": "eth0", "state": "up", "mtu": 1500 },
            { "name": "eth1", "state": "up", "mtu": 1500 },
            { "name": "br1", "state": "absent" }
        ] });
        let entry = Entry { before: before.clone().into_value(), revert, ..Entry::default() };
        assert_eq!(raised(&entry, &before), expected);
    }
}
