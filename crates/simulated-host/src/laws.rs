//! What every [`Host`] has to obey, written against the trait alone.
//!
//! Public, so that every implementation can be checked: the simulated one is checked in this crate's own
//! tests, one that needs a real network service wherever such a service can be started. There is no feature to switch
//! them on, because generic code that is not called is not part of any binary.
//!
//! The laws run one after the other on a machine that nothing else changes meanwhile. They leave it as they found
//! it, unless one is broken.

use knmstate_document::{NetworkState, secrets};

use std::fmt::{self, Display};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use knmstate_host::{Checkpoint, Guard, Host, HostError, Topic};

/// What the laws may change on the host, and how long they wait for it.
#[derive(Debug, Clone)]
pub struct LawSetup {
    /// A NIC that may lose and get addresses for a moment.
    pub nic: String,
    /// A name that no interface has.
    pub bridge: String,
    /// The time that the machine may take for a change, and that changes are left open where no law waits for the end
    /// of it.
    pub limit: Duration,
    /// The time that changes are left open where a law waits for the end of it. [`all`] makes it longer on a machine
    /// that needs longer for applying one.
    pub deadline: Duration,
    /// How much later than promised something may be seen.
    pub patience: Duration,
    /// How long nothing may happen before it counts as silence.
    pub silence: Duration,
}

impl LawSetup {
    /// The setup for machines that answer at once, with `nic` to play with.
    pub fn on(nic: impl Into<String>) -> Self {
        Self {
            nic: nic.into(),
            bridge: "laws0".to_owned(),
            limit: Duration::from_mins(1),
            deadline: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            silence: Duration::from_secs(2),
        }
    }

    /// The same on a machine that takes `times` as long for everything. What a law only waits for to happen may take as
    /// much longer. The time that it has to sit out does not: a silence is only doubled, and the deadline is measured.
    #[must_use]
    pub fn slower(self, times: u32) -> Self {
        Self {
            limit: self.limit * times,
            patience: self.patience * times,
            silence: if times > 1 { self.silence * 2 } else { self.silence },
            ..self
        }
    }
}

/// A law that the host does not obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub law: &'static str,
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the law {:?} is broken: {}", self.law, self.why)
    }
}

impl std::error::Error for Broken {}

/// A change that applying has taken a third of its time of is not cut off by a machine that is busy for a moment.
const ROOM: u32 = 3;

/// Runs all laws; the first broken one ends it.
pub async fn all<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    reading_changes_nothing(host, setup).await?;
    a_refused_document_changes_nothing(host, setup).await?;
    let took = time_to_apply_what_rolling_back_restores(host, setup).await?;
    let setup = &LawSetup { deadline: setup.deadline.max(took * ROOM).min(setup.limit), ..setup.clone() };
    time_restores(host, setup).await?;
    a_change_outlives_its_maker(host, setup).await?;
    what_is_left_open_is_for_others(host, setup).await?;
    committing_keeps(host, setup).await?;
    one_change_at_a_time(host, setup).await?;
    what_is_so_already_is_not_touched(host, setup).await
}

/// Reading gives the same as long as nothing happens, and sends no event.
pub async fn reading_changes_nothing<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("reading changes nothing", host, setup);
    // A machine that has just come up still gives itself addresses.
    law.silence().await?;
    let mut events = host.events();
    let before = law.look().await?;
    law.same(&before, &law.look().await?)?;
    match timeout(setup.silence, events.next()).await {
        Err(_) => Ok(()),
        Ok(changes) => law.broken(format!("nothing was done, and still there was {changes:?}")),
    }
}

/// An impossible document is refused for good, with the place, and nothing is touched. Planning refuses it as well.
pub async fn a_refused_document_changes_nothing<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("a refused document changes nothing", host, setup);
    let before = law.look().await?;
    let mut desired = law.bridge_with_route()?.into_value();
    desired["routes"]["config"][0]["next-hop-interface"] = json!("no-such-if");
    let desired = law.parse(desired)?;
    let begun = host.begin(&desired, setup.limit).await;
    let planned = host.plan(&desired).await;
    if planned.as_ref().err() != begun.as_ref().err() {
        return law.broken(format!("begin gave {begun:?}, but planning it {planned:?}"));
    }
    match begun {
        Ok(_) => return law.broken("a route over an interface that does not exist was accepted"),
        Err(error) if error.is_retryable() => {
            return law.broken(format!("retrying cannot help, but the error says so: {error}"));
        }
        Err(error) if error.place().is_none() => {
            return law.broken(format!("the error does not say where: {error}"));
        }
        Err(_) => {}
    }
    law.same(&before, &law.look().await?)?;
    law.nothing_of_ours_is_open().await
}

/// Begin and roll back is as before, and wakes those who watch.
pub async fn rolling_back_restores<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    time_to_apply_what_rolling_back_restores(host, setup).await.map(drop)
}

async fn time_to_apply_what_rolling_back_restores<H: Host>(
    host: &H,
    setup: &LawSetup,
) -> Result<Duration, Broken> {
    let law = Law::new("rolling back restores", host, setup);
    let before = law.look().await?;
    let mut events = host.events();
    let desired = law.bridge_and_address()?;
    let began = Instant::now();
    let checkpoint = law.begin(&desired).await?;
    let took = began.elapsed();
    law.satisfied(&desired).await?;
    match timeout(setup.patience, events.next()).await {
        Ok(Some(changes)) if [Topic::Link, Topic::Address].iter().any(|topic| changes.contains(*topic)) => {}
        other => return law.broken(format!("a new interface gave {other:?} to those who watch")),
    }
    law.roll_back(&checkpoint).await?;
    law.same(&before, &law.look().await?)?;
    law.gone("rolling back a second time", host.roll_back(&checkpoint).await)?;
    law.gone("committing what was rolled back", host.commit(&checkpoint).await)?;
    law.nothing_of_ours_is_open().await?;
    Ok(took)
}

/// A change that is not settled is undone when its time has passed.
pub async fn time_restores<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("time restores", host, setup);
    let before = law.look().await?;
    let checkpoint = law.begin_for(setup.deadline, &law.bridge_and_address()?).await?;
    law.becomes(&before, setup.deadline + setup.patience).await?;
    law.gone("committing after the deadline", host.commit(&checkpoint).await)?;
    law.nothing_of_ours_is_open().await
}

/// A change can be found and undone by another process, while the machine still guards it.
pub async fn a_change_outlives_its_maker<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("a change outlives its maker", host, setup);
    let before = law.look().await?;
    let desired = law.bridge_and_address()?;
    let maker = {
        let (host, desired, limit) = (host.clone(), desired.clone(), setup.limit);
        tokio::spawn(async move { host.begin(&desired, limit).await.map(drop) })
    };
    match maker.await {
        Ok(Ok(())) => {}
        other => return law.broken(format!("a change could not be begun in a task of its own: {other:?}")),
    }
    let open = law.expect("listing open checkpoints", host.open_checkpoints().await)?;
    let Some(left) = open.iter().find(|open| open.ours) else {
        return law.broken(format!("the change is not in the list: {open:?}"));
    };
    match left.guard {
        // A machine that counts in whole seconds rounds up.
        Guard::RollsBackIn(left) if left <= setup.limit + Duration::from_secs(1) => {}
        other => {
            return law.broken(format!("it should be guarded for {:?}, but is {other:?}", setup.limit));
        }
    }
    law.satisfied(&desired).await?;
    law.roll_back(&left.checkpoint).await?;
    law.same(&before, &law.look().await?)
}

/// A change that is left open is listed as such, is not for the next run of the agent to undo, and can be settled by
/// the process that knows its name; also one that changes nothing.
pub async fn what_is_left_open_is_for_others<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("what is left open is for others", host, setup);
    let before = law.look().await?;
    let nothing = law.parse(json!({ "interfaces": [] }))?;
    for (desired, commit) in [(law.bridge_and_address()?, false), (nothing, true)] {
        let checkpoint = law.begin(&desired).await?;
        law.expect("leaving it open", host.leave_open(&checkpoint, setup.limit).await)?;
        let open = law.expect("listing open checkpoints", host.open_checkpoints().await)?;
        match open.iter().find(|open| open.checkpoint == checkpoint) {
            Some(open) if open.ours && open.left_open.is_some() && !open.is_ours_to_undo() => {}
            other => return law.broken(format!("it should be listed as left open, but there is {other:?}")),
        }
        law.satisfied(&desired).await?;
        match host.begin(&law.bridge_with_route()?, setup.limit).await {
            Err(HostError::Busy { checkpoint: other, .. }) if other == checkpoint => {}
            other => {
                return law.broken(format!("a second change should find it in its way, but got {other:?}"));
            }
        }
        if commit {
            law.expect("committing", host.commit(&checkpoint).await)?;
        } else {
            law.roll_back(&checkpoint).await?;
        }
        law.gone("leaving open what is settled", host.leave_open(&checkpoint, setup.limit).await)?;
        law.nothing_of_ours_is_open().await?;
    }
    law.same(&before, &law.look().await?)
}

/// A committed change stays when its time has passed, and what is wanted absent is gone.
pub async fn committing_keeps<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("committing keeps", host, setup);
    let before = law.look().await?;
    let desired = law.bridge_with_route()?;
    let checkpoint = law.begin_for(setup.deadline, &desired).await?;
    law.expect("committing", host.commit(&checkpoint).await)?;
    law.nothing_of_ours_is_open().await?;
    sleep(setup.deadline + setup.silence).await;
    law.satisfied(&desired).await?;
    law.gone("rolling back what was committed", host.roll_back(&checkpoint).await)?;
    law.satisfied(&desired).await?;

    law.remove_bridge().await?;
    law.same(&before, &law.look().await?)
}

/// While a change is open, a second one is refused, and the first is not disturbed. Planning is not refused.
pub async fn one_change_at_a_time<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("one change at a time", host, setup);
    let before = law.look().await?;
    let first = law.bridge_with_route()?;
    let checkpoint = law.begin(&first).await?;
    match host.begin(&law.bridge_and_address()?, setup.limit).await {
        Err(HostError::Busy { checkpoint: other, .. }) if other == checkpoint => {}
        other => {
            return law
                .broken(format!("a second change should find the first in its way, but got {other:?}"));
        }
    }
    law.nothing_to_do(&first).await?;
    law.satisfied(&first).await?;
    law.roll_back(&checkpoint).await?;
    law.same(&before, &law.look().await?)
}

/// Applying what is so already touches nothing, and neither does planning: no event is sent.
pub async fn what_is_so_already_is_not_touched<H: Host>(host: &H, setup: &LawSetup) -> Result<(), Broken> {
    let law = Law::new("what is so already is not touched", host, setup);
    let before = law.look().await?;
    let desired = law.bridge_with_route()?;
    if law.expect("planning", host.plan(&desired).await)?.is_empty() {
        return law.broken("the plan for something new is empty");
    }
    law.same(&before, &law.look().await?)?;
    let checkpoint = law.begin(&desired).await?;
    law.expect("committing", host.commit(&checkpoint).await)?;
    law.silence().await?;

    let settled = law.look().await?;
    let mut events = host.events();
    law.nothing_to_do(&desired).await?;
    let again = law.begin(&desired).await?;
    law.expect("committing again", host.commit(&again).await)?;
    if let Ok(changes) = timeout(setup.silence, events.next()).await {
        return law.broken(format!("applying it again gave {changes:?} to those who watch"));
    }
    law.same(&settled, &law.look().await?)?;

    law.remove_bridge().await?;
    law.same(&before, &law.look().await?)
}

/// Where two states differ, and what is there in each. A whole state is too long to find anything in.
fn differences(before: &NetworkState, now: &NetworkState) -> Vec<String> {
    fn compare(place: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
        match (before, now) {
            (before, now) if before == now => {}
            (Value::Object(before), Value::Object(now)) => {
                for key in before.keys().chain(now.keys().filter(|key| !before.contains_key(*key))) {
                    let value = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                    compare(&format!("{place}/{key}"), &value(before), &value(now), found);
                }
            }
            (Value::Array(before), Value::Array(now)) => {
                // What has a name is found by it; of the rest, what only one side has.
                let same = |a: &Value, b: &Value| match (a.get("name"), b.get("name")) {
                    (Some(a), Some(b)) => a == b,
                    _ => a == b,
                };
                for entry in before {
                    let place = format!("{place}[{}]", entry.get("name").unwrap_or(&Value::Null));
                    let other = now.iter().find(|other| same(entry, other)).unwrap_or(&Value::Null);
                    compare(&place, entry, other, found);
                }
                for entry in now.iter().filter(|entry| !before.iter().any(|other| same(entry, other))) {
                    let place = format!("{place}[{}]", entry.get("name").unwrap_or(&Value::Null));
                    compare(&place, &Value::Null, entry, found);
                }
                if found.is_empty() {
                    found.push(format!("{place}: another order"));
                }
            }
            (before, now) => found.push(format!("{place}: {before} before, {now} now")),
        }
    }
    let value = |state: &NetworkState| {
        let mut value = state.clone().into_value();
        secrets::hide(&mut value);
        value
    };
    let mut found = Vec::new();
    compare("", &value(before), &value(now), &mut found);
    found
}

/// One law on trial.
struct Law<'a, H> {
    name: &'static str,
    host: &'a H,
    setup: &'a LawSetup,
}

impl<'a, H: Host> Law<'a, H> {
    fn new(name: &'static str, host: &'a H, setup: &'a LawSetup) -> Self {
        Self { name, host, setup }
    }

    fn broken<T>(&self, why: impl Into<String>) -> Result<T, Broken> {
        Err(Broken { law: self.name, why: why.into() })
    }

    fn expect<T>(&self, what: &str, result: Result<T, impl Display>) -> Result<T, Broken> {
        result.or_else(|error| self.broken(format!("{what} failed: {error}")))
    }

    fn gone(&self, what: &str, result: Result<(), HostError>) -> Result<(), Broken> {
        match result {
            Err(HostError::CheckpointGone { .. }) => Ok(()),
            other => self.broken(format!("{what} should find no checkpoint, but gave {other:?}")),
        }
    }

    fn parse(&self, document: Value) -> Result<NetworkState, Broken> {
        self.expect("writing the document", NetworkState::parse(document))
    }

    async fn begin(&self, desired: &NetworkState) -> Result<Checkpoint, Broken> {
        self.begin_for(self.setup.limit, desired).await
    }

    async fn begin_for(&self, time: Duration, desired: &NetworkState) -> Result<Checkpoint, Broken> {
        self.expect("beginning", self.host.begin(desired, time).await)
    }

    async fn nothing_to_do(&self, desired: &NetworkState) -> Result<(), Broken> {
        let plan = self.expect("planning", self.host.plan(desired).await)?;
        if plan.is_empty() { Ok(()) } else { self.broken(format!("it is so already, but there is {plan:?}")) }
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), Broken> {
        self.expect("rolling back", self.host.roll_back(checkpoint).await)
    }

    /// Reads the state. No state may show a port whose controller is not there.
    async fn look(&self) -> Result<NetworkState, Broken> {
        let state = self.expect("reading", self.host.observe().await)?;
        for interface in state.interfaces() {
            if let Some(controller) = interface.get("controller").and_then(Value::as_str)
                && !controller.is_empty()
                && state.interface(controller).is_none()
            {
                return self.broken(format!(
                    "{:?} is a port of {controller}, which is not there",
                    interface.get("name")
                ));
            }
        }
        Ok(state)
    }

    async fn satisfied(&self, desired: &NetworkState) -> Result<(), Broken> {
        match desired.first_unmet_in(&self.look().await?) {
            None => Ok(()),
            Some(unmet) => self.broken(format!("the change is not there: {unmet:?}")),
        }
    }

    fn same(&self, before: &NetworkState, now: &NetworkState) -> Result<(), Broken> {
        let (before, now) = (before.without_moving_values(), now.without_moving_values());
        if before == now {
            return Ok(());
        }
        self.broken(format!("the state is not what it was: {}", differences(&before, &now).join("; ")))
    }

    /// Waits until the state is `wanted`.
    async fn becomes(&self, wanted: &NetworkState, limit: Duration) -> Result<(), Broken> {
        let end = Instant::now() + limit;
        let mut events = self.host.events();
        loop {
            let now = self.look().await?;
            if now.without_moving_values() == wanted.without_moving_values() {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.same(wanted, &now);
            }
            // Woken by a change, or by the end of the time: either way the state is read once more.
            let _ = timeout(left, events.next()).await;
        }
    }

    /// Waits until the machine has stopped moving.
    async fn silence(&self) -> Result<(), Broken> {
        let end = Instant::now() + self.setup.patience;
        let mut events = self.host.events();
        while timeout(self.setup.silence, events.next()).await.is_ok() {
            if Instant::now() > end {
                return self.broken("the machine does not settle");
            }
        }
        Ok(())
    }

    async fn nothing_of_ours_is_open(&self) -> Result<(), Broken> {
        let open = self.expect("listing open checkpoints", self.host.open_checkpoints().await)?;
        match open.iter().find(|open| open.ours) {
            None => Ok(()),
            Some(left) => self.broken(format!("this is still open: {left:?}")),
        }
    }

    async fn remove_bridge(&self) -> Result<(), Broken> {
        let name = &self.setup.bridge;
        let absent = json!({ "interfaces": [{ "name": name, "type": "linux-bridge", "state": "absent" }] });
        let checkpoint = self.begin(&self.parse(absent)?).await?;
        self.expect("committing the removal", self.host.commit(&checkpoint).await)?;
        match self.look().await?.interface(name) {
            None => Ok(()),
            Some(_) => self.broken(format!("{name} is still there after it was removed")),
        }
    }

    /// Touches what is there and makes something new. The addresses are from the blocks for documentation.
    fn bridge_and_address(&self) -> Result<NetworkState, Broken> {
        self.parse(json!({
            "interfaces": [
                {
                    "name": self.setup.nic,
                    "state": "up",
                    "ipv4": {
                        "enabled": true, "dhcp": false,
                        "address": [{ "ip": "203.0.113.65", "prefix-length": 27 }]
                    }
                },
                {
                    "name": self.setup.bridge,
                    "type": "linux-bridge",
                    "state": "up",
                    "bridge": { "port": [] }
                }
            ]
        }))
    }

    /// Makes something new that can be removed without a trace.
    fn bridge_with_route(&self) -> Result<NetworkState, Broken> {
        self.parse(json!({
            "interfaces": [{
                "name": self.setup.bridge,
                "type": "linux-bridge",
                "state": "up",
                "ipv4": {
                    "enabled": true, "dhcp": false,
                    "address": [{ "ip": "203.0.113.1", "prefix-length": 27 }]
                },
                "bridge": { "port": [] }
            }],
            "routes": {
                "config": [{
                    "destination": "198.51.100.0/24",
                    "next-hop-interface": self.setup.bridge,
                    "next-hop-address": "203.0.113.2",
                    "metric": 150,
                    "table-id": 254
                }]
            }
        }))
    }
}
