//! The world of the protocol in small: an API server, its lease, controllers, and nodes with their handlers.

use knmstate_api::Permit;

/// The most nodes that a world can have.
pub const NODES: usize = 3;
pub const CONTROLLERS: usize = 2;

/// Which world is looked at: its size, its faults, and how its protocol differs from the real one, if it does.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub name: &'static str,
    pub nodes: usize,
    /// Nodes that are not there at the beginning, counted from the last one.
    pub absent: usize,
    /// With two there is a lease between them, and time passes.
    pub controllers: usize,
    /// What the admin writes, one after the other, whenever he likes.
    pub generations: &'static [Generation],
    /// How often each fault may happen.
    pub faults: Faults,
    pub variations: &'static [Variation],
}

/// A generation of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    pub limit: usize,
    /// Which network it asks for. Zero is the one that all nodes have at first.
    pub asks: u8,
    pub tolerated_failures: Option<i32>,
}

/// How often each fault, or wish of a person, may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub controller_crashes: u8,
    /// Hand-overs on purpose.
    pub releases: u8,
    /// Requests that are lost, or whose answer is.
    pub losses: u8,
    pub handler_crashes: u8,
    /// Statuses that are written once more after a newer one.
    pub late_statuses: u8,
    /// Attempts that fail for good.
    pub failures: u8,
    /// Nodes that go away, for a while or for ever.
    pub absences: u8,
    pub additions: u8,
    pub removals: u8,
    /// Nodes that the policy selects no more.
    pub deselections: u8,
    /// Networks that somebody else changes.
    pub drifts: u8,
}

/// How a protocol can differ from the real one. Most of these are flaws, and must be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// Decisions are made from what was seen, without what was written since.
    ForgetsOwnWrites,
    /// A new leader goes on from what it had seen before it took the lease.
    TakesOverUnlisted,
    /// What a former leader has sent lands after the lease was taken over.
    FormerLeaderLandsLate,
    /// A restarted controller goes by its former name.
    KeepsItsName,
    /// A node that is at work loses its permit with a new generation.
    NewGenerationTakesPermits,
    /// A write that was given up lands after one that was sent later by the same leader.
    OwnWriteLandsLate,
    /// The API server takes an older generation.
    ServerGoesBack,
    /// A handler tries again, after a restart, what it had told to have failed for good.
    FailedStartsOver,
    /// The server refuses to take back a permit within a generation. No flaw: a second line of defence.
    ServerKeepsPermits,
}

/// Everything at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The generation of the policy.
    pub generation: u8,
    pub holder: Name,
    pub controllers: [Controller; CONTROLLERS],
    pub nodes: [Node; NODES],
    pub left: Faults,
}

/// Who holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Nobody,
    Controller { number: u8, life: u8 },
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
    pub stage: Said,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Said {
    #[default]
    Open,
    Available,
    Failed,
    Aborted,
}

impl Status {
    /// Whether it says that this generation needs nothing more of the node.
    pub fn is_finished(self, generation: u8) -> bool {
        self.generation == generation && self.stage != Said::Open
    }
}

/// How a node is, as its Node object tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Not there: not yet, or no more.
    Gone,
    Well,
    Away,
    /// Away for longer than anybody waits.
    GivenUp,
    /// There, but not one that the policy is for.
    Deselected,
}

/// A node: its objects at the API server, its handler, and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub health: Health,
    pub order: Option<Order>,
    pub status: Status,
    /// What is still on its way to the server, though something newer was written.
    pub late_status: Option<Status>,
    pub is_up: bool,
    /// The order that the handler has taken over; it is on its disk.
    pub known: Option<Order>,
    /// What the handler says of it; on its disk too.
    pub said: Status,
    /// The generation that it is really at work on.
    pub work: Option<u8>,
    /// What its network is.
    pub network: u8,
    /// Remembered for the promises: others were let in because it was given up, and it has not been let in since.
    pub is_excepted: bool,
    /// Remembered for the promises: the newest generation that it must not begin to work on.
    pub is_over_with: u8,
}

/// A controller, and what it believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    pub is_up: bool,
    pub life: u8,
    pub lease: LeaseView,
    /// Whether it has read everything since it took the lease.
    pub has_listed: bool,
    pub generation: u8,
    pub views: [View; NODES],
    /// How long ago it renewed before it last sent something that is still on its way.
    pub sent: Option<u8>,
}

/// What a controller knows about the lease. Ages are in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseView {
    pub holder: Option<Name>,
    pub age: u8,
    /// Whether it has changed since.
    pub is_behind: bool,
    /// How long ago the last successful renewal was begun.
    pub renewed: Option<u8>,
    /// A renewal on its way: how long ago it was begun, and whether the lease still is as it was seen then.
    pub renewing: Option<(u8, bool)>,
}

/// What a controller believes of a node, and what it is writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub health: Health,
    /// The order as it was read, or as it was decided since.
    pub order: Option<Order>,
    /// The order as it was read, whatever was decided since. Only flawed controllers look at it.
    pub read: Option<Order>,
    pub status: Status,
    /// Whether `order` is known to have reached the server.
    pub is_settled: bool,
    pub on_its_way: Option<Write>,
    /// Given up, and still on its way.
    pub late: Option<Write>,
}

/// A write of an enactment: its order, or its end.
pub type Write = Option<Order>;

impl World {
    pub fn has(&self, variation: Variation) -> bool {
        self.variations.contains(&variation)
    }

    pub fn has_lease(&self) -> bool {
        self.controllers > 1
    }

    pub fn terms(&self, generation: u8) -> &'static Generation {
        &self.generations[usize::from(generation) - 1]
    }

    /// Everything at the beginning: the first controller leads, and knows what there is.
    pub fn first(&self) -> State {
        let health = |node: usize| if node < self.nodes - self.absent { Health::Well } else { Health::Gone };
        let holder = Name::Controller { number: 0, life: 0 };
        let mut controllers = [Controller::new(); CONTROLLERS];
        for controller in &mut controllers[..self.controllers] {
            controller.is_up = true;
            controller.lease.holder = Some(holder);
            controller.lease.is_behind = false;
        }
        controllers[0].lease.renewed = Some(0);
        let mut state = State {
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

impl State {
    /// A controller reads everything.
    pub fn list(&mut self, controller: usize) {
        let controller = &mut self.controllers[controller];
        controller.has_listed = true;
        controller.generation = self.generation;
        for (view, node) in controller.views.iter_mut().zip(&self.nodes) {
            let View { on_its_way, late, .. } = *view;
            *view = View {
                health: node.health,
                order: node.order,
                read: node.order,
                status: node.status,
                is_settled: true,
                on_its_way,
                late,
            };
        }
    }
}

impl Controller {
    /// One that is not there, or has just begun.
    pub const fn new() -> Self {
        Self {
            is_up: false,
            life: 0,
            lease: LeaseView { holder: None, age: 0, is_behind: true, renewed: None, renewing: None },
            has_listed: false,
            generation: 0,
            views: [View::NOTHING; NODES],
            sent: None,
        }
    }

    pub fn has_something_on_its_way(&self) -> bool {
        self.views.iter().any(|view| view.on_its_way.is_some() || view.late.is_some())
    }

    /// Forgets what it believes; what it has sent stays on its way.
    pub fn forget(&mut self) {
        self.has_listed = false;
        self.generation = 0;
        for view in &mut self.views {
            let View { on_its_way, late, .. } = *view;
            *view = View { on_its_way, late, ..View::NOTHING };
        }
    }

    /// Nothing of what it has sent can land any more.
    pub fn hang_up(&mut self) {
        for view in &mut self.views {
            view.on_its_way = None;
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
        status: Status { generation: 0, stage: Said::Open },
        is_settled: true,
        on_its_way: None,
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
            said: Status::default(),
            work: None,
            network: 0,
            is_excepted: false,
            is_over_with: 0,
        }
    }

    /// Whether it is there, for this policy or not.
    pub fn is_there(&self) -> bool {
        self.health != Health::Gone
    }
}
