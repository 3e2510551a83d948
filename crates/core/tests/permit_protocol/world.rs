//! The states of the model: an API server, its lease, controllers, and nodes with their handlers.

use knmstate_api::Permit;

/// The maximum number of nodes in a scenario.
pub const NODES: usize = 3;
pub const CONTROLLERS: usize = 2;

/// A scenario: its size, its faults, and how its protocol differs from the real one.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub nodes: usize,
    /// How many of the nodes do not exist at the beginning; the last ones.
    pub absent: usize,
    /// With two there is a lease, and time passes.
    pub controllers: usize,
    /// The generations that the admin writes one after the other, at any time.
    pub generations: &'static [Generation],
    /// How often each fault may happen.
    pub faults: Faults,
    pub variations: &'static [Variation],
}

/// A generation of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    pub limit: usize,
    /// The network that it requests. All nodes start with network 0.
    pub network: u8,
    pub tolerated_failures: Option<i32>,
}

/// How often each fault or action of a person may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub controller_crashes: u8,
    /// Releases of the lease.
    pub releases: u8,
    /// Requests that are lost, or whose response is lost.
    pub losses: u8,
    pub handler_crashes: u8,
    /// Status updates that arrive again after a newer one.
    pub late_statuses: u8,
    /// Attempts that finally fail.
    pub failures: u8,
    /// Nodes that become unhealthy, for a while or for ever.
    pub absences: u8,
    pub additions: u8,
    pub removals: u8,
    /// Nodes that the policy no longer selects.
    pub deselections: u8,
    /// Networks that another program changes.
    pub drifts: u8,
}

/// How a protocol can differ from the real one. Most of these are bugs that the search has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// Decisions are made from the objects that were read, without writes since.
    ForgetsOwnWrites,
    /// A new leader does not list; it continues with what it had read before it took the lease.
    TakesOverUnlisted,
    /// A write of a former leader arrives after the lease was taken over.
    FormerLeaderArrivesLate,
    /// A restarted controller has the same identity.
    KeepsItsIdentity,
    /// A node that is at work loses its permit with a new generation.
    NewGenerationRevokesPermits,
    /// A write that has timed out arrives after one that the same leader has sent later.
    OwnWriteArrivesLate,
    /// The API server accepts an older generation.
    ServerAcceptsOlder,
    /// After a restart, a handler retries an order that had finally failed.
    FailedStartsOver,
    /// The server refuses to revoke a permit within a generation. Not a bug, but a second safeguard.
    ServerKeepsPermits,
}

/// A state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    /// The generation of the policy.
    pub generation: u8,
    pub holder: LeaseHolder,
    pub controllers: [Controller; CONTROLLERS],
    pub nodes: [Node; NODES],
    pub left: Faults,
}

/// The holder of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseHolder {
    None,
    Controller { number: u8, run: u8 },
}

/// Part of a spec, as the controller writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    pub generation: u8,
    pub permit: Permit,
}

/// Part of a status, as the handler writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    pub generation: u8,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    #[default]
    Unfinished,
    Available,
    Failed,
    Aborted,
}

impl Status {
    /// Whether it is a final result of this generation.
    pub fn is_finished(self, generation: u8) -> bool {
        self.generation == generation && self.outcome != Outcome::Unfinished
    }
}

/// The health of a node, by its Node object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The node does not exist, not yet or no longer.
    Gone,
    Healthy,
    Unhealthy,
    /// Unhealthy for longer than a rollout waits.
    GivenUp,
    /// The node exists, but the policy does not select it.
    Deselected,
}

/// A node: its objects at the API server, its handler, and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub health: Health,
    pub order: Option<Order>,
    pub status: Status,
    /// A status update that is in transit although a newer one has arrived.
    pub late_status: Option<Status>,
    pub is_up: bool,
    /// The order that the handler has written to its disk.
    pub known: Option<Order>,
    /// The handler's result of that order, on its disk, too.
    pub result: Status,
    /// The generation that it is applying.
    pub work: Option<u8>,
    /// Its network.
    pub network: u8,
    /// For the invariants: the rollout has given up on it, and it has got no permit since.
    pub is_excepted: bool,
    /// For the invariants: the newest generation that it must not begin to apply.
    pub superseded: u8,
}

/// A controller, with its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    pub is_up: bool,
    /// The number of its restarts, which makes its identity unique.
    pub run: u8,
    pub lease: LeaseView,
    /// Whether it has listed all objects since it took the lease.
    pub has_listed: bool,
    pub generation: u8,
    pub views: [View; NODES],
    /// The age of the renewal on which its last write in transit was based.
    pub sent: Option<u8>,
}

/// The lease as a controller has read it. Ages are in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseView {
    pub holder: Option<LeaseHolder>,
    pub age: u8,
    /// Whether the lease has changed since.
    pub is_behind: bool,
    /// The age of the last successful renewal, from its begin.
    pub renewed: Option<u8>,
    /// A renewal in transit: its age, and whether the lease is unchanged since it was read.
    pub renewing: Option<(u8, bool)>,
}

/// A node in the caches of a controller, and the writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub health: Health,
    /// The order as it was read or, if newer, decided.
    pub order: Option<Order>,
    /// The order as it was read. Only controllers with an injected bug use it.
    pub read: Option<Order>,
    pub status: Status,
    /// Whether the server has confirmed `order`.
    pub is_settled: bool,
    pub in_transit: Option<Write>,
    /// Timed out, and still in transit.
    pub late: Option<Write>,
}

/// A write of an enactment: its order, or its deletion.
pub type Write = Option<Order>;

impl Scenario {
    pub fn has(&self, variation: Variation) -> bool {
        self.variations.contains(&variation)
    }

    pub fn has_lease(&self) -> bool {
        self.controllers > 1
    }

    pub fn generation(&self, generation: u8) -> &'static Generation {
        &self.generations[usize::from(generation) - 1]
    }

    /// The initial state: the first controller leads and has listed all objects.
    pub fn initial(&self) -> ModelState {
        let health =
            |node: usize| if node < self.nodes - self.absent { Health::Healthy } else { Health::Gone };
        let holder = LeaseHolder::Controller { number: 0, run: 0 };
        let mut controllers = [Controller::new(); CONTROLLERS];
        for controller in &mut controllers[..self.controllers] {
            controller.is_up = true;
            controller.lease.holder = Some(holder);
            controller.lease.is_behind = false;
        }
        controllers[0].lease.renewed = Some(0);
        let mut state = ModelState {
            generation: 1,
            holder,
            controllers,
            nodes: std::array::from_fn(|node| Node::new(health(node))),
            left: self.faults,
        };
        state.list(0);
        if self.has(Variation::TakesOverUnlisted) {
            state.list(1);
            state.controllers[1].has_listed = false;
        }
        state
    }
}

impl ModelState {
    /// A controller lists all objects.
    pub fn list(&mut self, controller: usize) {
        let controller = &mut self.controllers[controller];
        controller.has_listed = true;
        controller.generation = self.generation;
        for (view, node) in controller.views.iter_mut().zip(&self.nodes) {
            let View { in_transit, late, .. } = *view;
            *view = View {
                health: node.health,
                order: node.order,
                read: node.order,
                status: node.status,
                is_settled: true,
                in_transit,
                late,
            };
        }
    }
}

impl Controller {
    /// One that does not exist, or has just started.
    pub const fn new() -> Self {
        Self {
            is_up: false,
            run: 0,
            lease: LeaseView { holder: None, age: 0, is_behind: true, renewed: None, renewing: None },
            has_listed: false,
            generation: 0,
            views: [View::NOTHING; NODES],
            sent: None,
        }
    }

    pub fn has_writes_in_transit(&self) -> bool {
        self.views.iter().any(|view| view.in_transit.is_some() || view.late.is_some())
    }

    /// Clears its caches; its writes stay in transit.
    pub fn forget(&mut self) {
        self.has_listed = false;
        self.generation = 0;
        for view in &mut self.views {
            let View { in_transit, late, .. } = *view;
            *view = View { in_transit, late, ..View::NOTHING };
        }
    }

    /// Drops its writes in transit.
    pub fn drop_writes(&mut self) {
        for view in &mut self.views {
            view.in_transit = None;
            view.late = None;
        }
        self.sent = None;
    }
}

impl View {
    const NOTHING: Self = Self {
        health: Health::Gone,
        order: None,
        read: None,
        status: Status { generation: 0, outcome: Outcome::Unfinished },
        is_settled: true,
        in_transit: None,
        late: None,
    };
}

impl Node {
    pub fn new(health: Health) -> Self {
        Self {
            health,
            order: None,
            status: Status::default(),
            late_status: None,
            is_up: health != Health::Gone,
            known: None,
            result: Status::default(),
            work: None,
            network: 0,
            is_excepted: false,
            superseded: 0,
        }
    }

    /// Whether it exists, selected or not.
    pub fn exists(&self) -> bool {
        self.health != Health::Gone
    }
}
