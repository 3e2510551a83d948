//! Whether the operator creates an NMState in a cluster that has none.
//!
//! OpenShift wants node networking on bare metal, and only the operator on other platforms. In a cluster that does not
//! report its platform, an admin has to create the NMState.

use std::{collections::BTreeSet, str::FromStr};

/// When the operator creates an NMState.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoCreate {
    pub mode: AutoCreateMode,
    /// The platforms on which [`AutoCreateMode::Auto`] makes one, as `Infrastructure/cluster` names them.
    pub platforms: BTreeSet<String>,
}

/// How to decide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoCreateMode {
    /// By the platform.
    #[default]
    Auto,
    /// On every platform, including unknown ones.
    Always,
    /// On no platform.
    Never,
}

impl Default for AutoCreate {
    fn default() -> Self {
        Self { mode: AutoCreateMode::Auto, platforms: ["BareMetal".to_owned()].into() }
    }
}

impl FromStr for AutoCreateMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            other => Err(format!("{other:?} is none of auto, always and never")),
        }
    }
}

impl AutoCreate {
    /// Whether to create an NMState where there is none. `platform` is `None` if the cluster does not report it.
    pub fn applies_to(&self, platform: Option<&str>) -> bool {
        match self.mode {
            AutoCreateMode::Always => true,
            AutoCreateMode::Never => false,
            AutoCreateMode::Auto => platform.is_some_and(|platform| self.platforms.contains(platform)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_decides_unless_configured_otherwise() {
        let with = |mode, platforms: &[&str]| AutoCreate {
            mode,
            platforms: platforms.iter().map(|&platform| platform.to_owned()).collect(),
        };
        let default = AutoCreate::default();
        let own_machines = with(AutoCreateMode::Auto, &["BareMetal", "None"]);
        for (auto_create, platform, expected) in [
            (&default, Some("BareMetal"), true),
            (&default, Some("None"), false),
            (&default, Some("AWS"), false),
            (&default, None, false),
            (&own_machines, Some("None"), true),
            (&own_machines, None, false),
            (&with(AutoCreateMode::Always, &[]), Some("AWS"), true),
            (&with(AutoCreateMode::Always, &[]), None, true),
            (&with(AutoCreateMode::Never, &["BareMetal"]), Some("BareMetal"), false),
        ] {
            assert_eq!(auto_create.applies_to(platform), expected, "{auto_create:?} on {platform:?}");
        }
    }

    #[test]
    fn a_mode_that_is_none_is_refused() {
        assert_eq!(
            "sometimes".parse::<AutoCreateMode>(),
            Err("\"sometimes\" is none of auto, always and never".to_owned())
        );
        assert_eq!("".parse(), Ok(AutoCreateMode::Auto));
    }
}
