//! What a probe has to show after a change, or it is rolled back.

use knmstate_api::{enactment::ProbeOutcome, probe::ProbePolicy};

use super::{Check, Families, Probe};

/// The result of trying a probe before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    pub outcome: ProbeOutcome,
    /// The families whose default gateway answered; empty for other probes.
    pub families: Families,
}

/// What is required of a probe after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing: it does not count.
    Nothing,
    /// It must pass.
    Pass,
    /// A default gateway of either family must answer.
    AnyFamily,
    /// A default gateway of each of these families must answer.
    Families(Families),
}

/// What is required of a probe after the change, given its result before; `None` if it was not tried.
///
/// A family without a gateway that answered before needs none after the change, unless the desired state sets it.
pub fn requirement(probe: &Probe, before: Option<Observation>) -> Requirement {
    let before = before.filter(|seen| seen.outcome == ProbeOutcome::Passed);
    let counts = match probe.policy {
        ProbePolicy::Required => true,
        ProbePolicy::IfPassingBefore => before.is_some(),
        ProbePolicy::Disabled => false,
    };
    match probe.check {
        _ if !counts => Requirement::Nothing,
        Check::DefaultGateway { wanted } => {
            let families = before.map_or(Families::NONE, |seen| seen.families).union(wanted);
            if families.is_empty() { Requirement::AnyFamily } else { Requirement::Families(families) }
        }
        _ => Requirement::Pass,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const V4: Families = Families { v4: true, v6: false };
    const V6: Families = Families { v4: false, v6: true };

    fn seen(outcome: ProbeOutcome, families: Families) -> Observation {
        Observation { outcome, families }
    }

    fn probe(check: Check, policy: ProbePolicy) -> Probe {
        Probe { name: "probe".to_owned(), check, policy, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn a_required_probe_must_pass_and_an_optional_one_only_if_it_did_before() {
        use ProbePolicy::{Disabled, IfPassingBefore, Required};
        let passed = Some(seen(ProbeOutcome::Passed, Families::NONE));
        let failed = Some(seen(ProbeOutcome::Failed, Families::NONE));
        for (policy, before, expected) in [
            (Required, passed, Requirement::Pass),
            (Required, failed, Requirement::Pass),
            (Required, None, Requirement::Pass),
            (IfPassingBefore, passed, Requirement::Pass),
            (IfPassingBefore, failed, Requirement::Nothing),
            (IfPassingBefore, None, Requirement::Nothing),
            (Disabled, passed, Requirement::Nothing),
            (Disabled, failed, Requirement::Nothing),
            (Disabled, None, Requirement::Nothing),
        ] {
            let found = requirement(&probe(Check::NameServers, policy), before);
            assert_eq!(found, expected, "{policy:?}: {before:?} before");
        }
    }

    #[test]
    fn a_family_whose_gateway_answered_before_needs_one_that_answers() {
        use ProbePolicy::{IfPassingBefore, Required};
        let (none, all) = (Families::NONE, Families::ALL);
        for (policy, wanted, before, expected) in [
            (IfPassingBefore, none, none, Requirement::Nothing),
            (IfPassingBefore, none, V4, Requirement::Families(V4)),
            (IfPassingBefore, none, all, Requirement::Families(all)),
            (Required, none, none, Requirement::AnyFamily),
            (Required, none, V6, Requirement::Families(V6)),
            (Required, V4, none, Requirement::Families(V4)),
            (Required, V4, V6, Requirement::Families(all)),
        ] {
            let outcome = if before.is_empty() { ProbeOutcome::Failed } else { ProbeOutcome::Passed };
            let probe = probe(Check::DefaultGateway { wanted }, policy);
            assert_eq!(
                requirement(&probe, Some(seen(outcome, before))),
                expected,
                "{policy:?}, wanted {wanted:?}, before {before:?}"
            );
        }
    }
}
