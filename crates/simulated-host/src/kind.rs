//! The kinds of interface that a simulated machine knows, and what sets them apart.

/// A kind of interface, by nmstate's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Ethernet,
    Loopback,
    Bond,
    LinuxBridge,
    Vrf,
    Vlan,
    Vxlan,
    MacVlan,
    MacVtap,
    IpVlan,
    Dummy,
    Veth,
}

/// nmstate knows these as well; no simulated machine does.
const NOT_SIMULATED: [&str; 9] =
    ["hsr", "infiniband", "ip-tunnel", "ipsec", "macsec", "ovs-bridge", "ovs-interface", "tun", "xfrm"];

impl Kind {
    const ALL: [Self; 12] = [
        Self::Ethernet,
        Self::Loopback,
        Self::Bond,
        Self::LinuxBridge,
        Self::Vrf,
        Self::Vlan,
        Self::Vxlan,
        Self::MacVlan,
        Self::MacVtap,
        Self::IpVlan,
        Self::Dummy,
        Self::Veth,
    ];

    /// nmstate's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Loopback => "loopback",
            Self::Bond => "bond",
            Self::LinuxBridge => "linux-bridge",
            Self::Vrf => "vrf",
            Self::Vlan => "vlan",
            Self::Vxlan => "vxlan",
            Self::MacVlan => "mac-vlan",
            Self::MacVtap => "mac-vtap",
            Self::IpVlan => "ipvlan",
            Self::Dummy => "dummy",
            Self::Veth => "veth",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(super) fn is_real_but_not_simulated(name: &str) -> bool {
        NOT_SIMULATED.contains(&name)
    }

    /// There because it was plugged in; no document can create or remove it.
    pub(super) fn is_hardware(self) -> bool {
        matches!(self, Self::Ethernet | Self::Loopback)
    }

    /// The key that holds what only this kind has.
    pub(super) fn section(self) -> Option<&'static str> {
        match self {
            Self::Ethernet => Some("ethernet"),
            Self::Loopback | Self::Dummy => None,
            Self::Bond => Some("link-aggregation"),
            Self::LinuxBridge => Some("bridge"),
            Self::Vrf => Some("vrf"),
            Self::Vlan => Some("vlan"),
            Self::Vxlan => Some("vxlan"),
            Self::MacVlan => Some("mac-vlan"),
            Self::MacVtap => Some("mac-vtap"),
            Self::IpVlan => Some("ipvlan"),
            Self::Veth => Some("veth"),
        }
    }

    /// Has ports below it.
    pub(super) fn is_controller(self) -> bool {
        matches!(self, Self::Bond | Self::LinuxBridge | Self::Vrf)
    }

    /// Lists its ports as maps with a `name`, not as plain names.
    pub(super) fn describes_its_ports(self) -> bool {
        self == Self::LinuxBridge
    }

    /// Takes the addresses away from the interfaces that become its ports.
    pub(super) fn silences_its_ports(self) -> bool {
        matches!(self, Self::Bond | Self::LinuxBridge)
    }

    /// Cannot exist without a base interface.
    pub(super) fn needs_a_base(self) -> bool {
        matches!(self, Self::Vlan | Self::MacVlan | Self::MacVtap | Self::IpVlan)
    }

    /// What NetworkManager gives a route over such an interface by default.
    pub(super) fn route_metric(self) -> i64 {
        match self {
            Self::Ethernet | Self::Veth => 100,
            Self::Bond => 300,
            Self::Vlan => 400,
            Self::LinuxBridge => 425,
            Self::MacVlan | Self::MacVtap | Self::IpVlan => 410,
            Self::Vxlan => 500,
            Self::Loopback | Self::Vrf | Self::Dummy => 550,
        }
    }
}
