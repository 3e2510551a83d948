//! Which probes decide whether a change stays.

use knmstate_api::{enactment::ProbeOutcome, probe::ProbePolicy};

use super::{Check, Families, Probe};

/// What was seen when a probe was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub outcome: ProbeOutcome,
    /// The families in which a default gateway answered; of no meaning for other probes.
    pub families: Families,
}

/// What is asked of a probe after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It does not count.
    Nothing,
    /// It must pass.
    Pass,
    /// A default gateway of either family must answer.
    AnyFamily,
    /// A default gateway of each of these families must answer.
    Families(Families),
}

/// What is asked of a probe after the change, by what was seen before; `None` if it was not tried.
///
/// A family in which no gateway answered before need not have one after, unless the change is about just that.
pub fn need(probe: &Probe, before: Option<Seen>) -> Need {
    let before = before.filter(|seen| seen.outcome == ProbeOutcome::Passed);
    let counts = match probe.policy {
        ProbePolicy::Required => true,
        ProbePolicy::IfPassingBefore => before.is_some(),
        ProbePolicy::Disabled => false,
    };
    match probe.check {
        _ if !counts => Need::Nothing,
        Check::DefaultGateway { wanted } => {
            let families = before.map_or(Families::NONE, |seen| seen.families).and(wanted);
            if families.is_empty() { Need::AnyFamily } else { Need::Families(families) }
        }
        _ => Need::Pass,
    }
}

impl Need {
    /// Whether this is enough for the change to stay; `None` if the probe was not tried after it.
    pub fn is_met_by(self, after: Option<Seen>) -> bool {
        let passed = after.is_some_and(|seen| seen.outcome == ProbeOutcome::Passed);
        let families = after.map_or(Families::NONE, |seen| seen.families);
        match self {
            Self::Nothing => true,
            Self::Pass => passed,
            Self::AnyFamily => passed && !families.is_empty(),
            Self::Families(needed) => passed && needed.without(families).is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const V4: Families = Families { v4: true, v6: false };
    const V6: Families = Families { v4: false, v6: true };

    fn seen(outcome: ProbeOutcome, families: Families) -> Seen {
        Seen { outcome, families }
    }

    fn probe(check: Check, policy: ProbePolicy) -> Probe {
        Probe { name: "probe".to_owned(), check, policy, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn a_required_probe_must_pass_and_an_optional_one_only_if_it_did_before() {
        use ProbePolicy::{Disabled, IfPassingBefore, Required};
        let passed = Some(seen(ProbeOutcome::Passed, Families::NONE));
        let failed = Some(seen(ProbeOutcome::Failed, Families::NONE));
        for (policy, before, after, stays) in [
            (Required, passed, passed, true),
            (Required, passed, failed, false),
            (Required, failed, passed, true),
            (Required, failed, failed, false),
            (Required, None, passed, true),
            (Required, None, None, false),
            (IfPassingBefore, passed, passed, true),
            (IfPassingBefore, passed, failed, false),
            (IfPassingBefore, passed, None, false),
            (IfPassingBefore, failed, passed, true),
            (IfPassingBefore, failed, failed, true),
            (IfPassingBefore, None, None, true),
            (Disabled, passed, failed, true),
            (Disabled, passed, None, true),
        ] {
            let need = need(&probe(Check::NameServers, policy), before);
            assert_eq!(need.is_met_by(after), stays, "{policy:?}: {before:?} before, {after:?} after");
        }
    }

    #[test]
    fn a_family_whose_gateway_answered_before_must_have_one_that_answers() {
        use ProbePolicy::{IfPassingBefore, Required};
        let (none, all) = (Families::NONE, Families::ALL);
        for (policy, wanted, before, expected) in [
            (IfPassingBefore, none, none, Need::Nothing),
            (IfPassingBefore, none, V4, Need::Families(V4)),
            (IfPassingBefore, none, all, Need::Families(all)),
            (Required, none, none, Need::AnyFamily),
            (Required, none, V6, Need::Families(V6)),
            (Required, V4, none, Need::Families(V4)),
            (Required, V4, V6, Need::Families(all)),
        ] {
            let outcome = if before.is_empty() { ProbeOutcome::Failed } else { ProbeOutcome::Passed };
            let probe = probe(Check::DefaultGateway { wanted }, policy);
            assert_eq!(
                need(&probe, Some(seen(outcome, before))),
                expected,
                "{policy:?}, wanted {wanted:?}, before {before:?}"
            );
        }
        for (need, after, stays) in [
            (Need::Families(V4), V4, true),
            (Need::Families(V4), all, true),
            (Need::Families(V4), V6, false),
            (Need::Families(all), V4, false),
            (Need::Families(all), all, true),
            (Need::AnyFamily, V6, true),
            (Need::AnyFamily, none, false),
        ] {
            assert_eq!(
                need.is_met_by(Some(seen(ProbeOutcome::Passed, after))),
                stays,
                "{need:?}, after {after:?}"
            );
            assert!(
                !need.is_met_by(Some(seen(ProbeOutcome::Failed, after))),
                "{need:?}: a failure was taken"
            );
        }
    }
}
