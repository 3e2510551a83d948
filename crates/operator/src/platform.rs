//! Whether node networking is switched on without anybody asking for it.
//!
//! OpenShift wants it where the machines are the customer's own, and nothing but a small operator elsewhere. A cluster
//! that does not say what it runs on gets nothing that nobody asked for.

use std::{collections::BTreeSet, str::FromStr};

/// When an NMState is made by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub mode: Mode,
    /// The platforms on which [`Mode::Auto`] makes one, as `Infrastructure/cluster` names them.
    pub platforms: BTreeSet<String>,
}

/// Whether the platform decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    #[default]
    Auto,
    /// On every platform, and where there is none to be known.
    Always,
    /// On none.
    Never,
}

impl Default for Gate {
    fn default() -> Self {
        Self { mode: Mode::Auto, platforms: ["BareMetal".to_owned()].into() }
    }
}

impl FromStr for Mode {
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

impl Gate {
    /// Whether an NMState is to be made where there is none. `platform` is `None` where the cluster does not say.
    pub fn opens(&self, platform: Option<&str>) -> bool {
        match self.mode {
            Mode::Always => true,
            Mode::Never => false,
            Mode::Auto => platform.is_some_and(|platform| self.platforms.contains(platform)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_decides_unless_told_otherwise() {
        let with = |mode, platforms: &[&str]| Gate {
            mode,
            platforms: platforms.iter().map(|&platform| platform.to_owned()).collect(),
        };
        let usual = Gate::default();
        let own_machines = with(Mode::Auto, &["BareMetal", "None"]);
        for (gate, platform, expected) in [
            (&usual, Some("BareMetal"), true),
            (&usual, Some("None"), false),
            (&usual, Some("AWS"), false),
            (&usual, None, false),
            (&own_machines, Some("None"), true),
            (&own_machines, None, false),
            (&with(Mode::Always, &[]), Some("AWS"), true),
            (&with(Mode::Always, &[]), None, true),
            (&with(Mode::Never, &["BareMetal"]), Some("BareMetal"), false),
        ] {
            assert_eq!(gate.opens(platform), expected, "{gate:?} on {platform:?}");
        }
    }

    #[test]
    fn a_mode_that_is_none_is_refused() {
        assert_eq!(
            "sometimes".parse::<Mode>(),
            Err("\"sometimes\" is none of auto, always and never".to_owned())
        );
        assert_eq!("".parse(), Ok(Mode::Auto));
    }
}
