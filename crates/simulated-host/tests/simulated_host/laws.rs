//! The simulated machine obeys the laws, and the laws notice a machine that does not.

use knmstate_document::NetworkState;
use std::time::Duration;

use knmstate_host::{
    Abilities, Checkpoint, Events, Host, HostError, OpenCheckpoint, Operation, Plan, Versions,
};
use knmstate_simulated_host::laws::{self, Broken, LawSetup};
use knmstate_simulated_host::{ApplyFault, Fault, SimulatedHost, Strikes};

use crate::common::machine;

#[tokio::test(start_paused = true)]
async fn the_simulated_machine_obeys_all_laws() {
    let machine = machine();
    let before = machine.state();
    if let Err(broken) = laws::all(&machine.host(), &LawSetup::on("eth1")).await {
        panic!("{broken}");
    }
    assert_eq!(machine.state(), before, "the laws clean up after themselves");
    assert!(machine.checkpoints_made() > 8, "the laws did something");
}

/// A host with one thing wrong with it.
#[derive(Clone)]
struct Flawed {
    inner: SimulatedHost,
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    RollBackDoesNothing,
    CommitDoesNothing,
    BeginIsSilentAboutRefusals,
    ListsNothing,
    ForgetsTheTime,
    LeavesNothingOpen,
    PlansNothing,
    PlanningTouches,
}

impl Host for Flawed {
    async fn observe(&self) -> Result<NetworkState, HostError> {
        self.inner.observe().await
    }

    fn events(&self) -> Events {
        self.inner.events()
    }

    async fn plan(&self, desired: &NetworkState) -> Result<Plan, HostError> {
        match self.flaw {
            Flaw::PlansNothing => self.inner.plan(desired).await.map(|_| Plan::default()),
            Flaw::PlanningTouches => {
                let plan = self.inner.plan(desired).await?;
                if let Ok(checkpoint) = self.inner.begin(desired, Duration::from_secs(1)).await {
                    self.inner.commit(&checkpoint).await?;
                }
                Ok(plan)
            }
            _ => self.inner.plan(desired).await,
        }
    }

    async fn begin(&self, desired: &NetworkState, deadline: Duration) -> Result<Checkpoint, HostError> {
        let deadline = if self.flaw == Flaw::ForgetsTheTime { deadline * 10 } else { deadline };
        match self.inner.begin(desired, deadline).await {
            Err(HostError::Invalid { .. }) if self.flaw == Flaw::BeginIsSilentAboutRefusals => {
                Ok(Checkpoint::new("none"))
            }
            other => other,
        }
    }

    async fn leave_open(&self, checkpoint: &Checkpoint, deadline: Duration) -> Result<(), HostError> {
        if self.flaw == Flaw::LeavesNothingOpen {
            return Ok(());
        }
        self.inner.leave_open(checkpoint, deadline).await
    }

    async fn commit(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        if self.flaw == Flaw::CommitDoesNothing { Ok(()) } else { self.inner.commit(checkpoint).await }
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        if self.flaw == Flaw::RollBackDoesNothing { Ok(()) } else { self.inner.roll_back(checkpoint).await }
    }

    async fn open_checkpoints(&self) -> Result<Vec<OpenCheckpoint>, HostError> {
        if self.flaw == Flaw::ListsNothing { Ok(Vec::new()) } else { self.inner.open_checkpoints().await }
    }

    async fn versions(&self) -> Versions {
        self.inner.versions().await
    }

    async fn abilities(&self) -> Abilities {
        self.inner.abilities().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_flawed_machine_breaks_the_law_that_its_flaw_is_about() {
    for (flaw, law) in [
        (Flaw::BeginIsSilentAboutRefusals, "a refused document changes nothing"),
        (Flaw::RollBackDoesNothing, "rolling back restores"),
        // Committing what was rolled back has to be refused: the first law that looks at commit finds it.
        (Flaw::CommitDoesNothing, "rolling back restores"),
        (Flaw::ListsNothing, "a change outlives its maker"),
        (Flaw::ForgetsTheTime, "time restores"),
        (Flaw::LeavesNothingOpen, "what is left open is for others"),
        (Flaw::PlansNothing, "what is so already is not touched"),
        (Flaw::PlanningTouches, "what is so already is not touched"),
    ] {
        let host = Flawed { inner: machine().host(), flaw };
        let broken = laws::all(&host, &LawSetup::on("eth1")).await.expect_err("the flaw was not noticed");
        assert_eq!(broken.law, law, "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_faulty_machine_breaks_the_law_with_the_reason() {
    let machine = machine();
    machine.arm(
        Operation::Observe,
        Strikes::Always,
        Fault::Fail(HostError::Unavailable { why: "x".to_owned() }),
    );
    assert_eq!(
        laws::all(&machine.host(), &LawSetup::on("eth1")).await,
        Err(Broken {
            law: "reading changes nothing",
            why: "reading failed: NetworkManager is not available: x".to_owned()
        })
    );

    machine.clear_faults();
    let ip = "203.0.113.1".parse().expect("an address");
    let lose =
        ApplyFault::LoseAddress { interface: "laws0".to_owned(), address: ip, after: Duration::from_secs(1) };
    machine.arm_apply(Strikes::Always, lose);
    let broken =
        laws::committing_keeps(&machine.host(), &LawSetup::on("eth1")).await.expect_err("it was lost");
    assert!(broken.why.starts_with("the change is not there"), "{broken}");
}
