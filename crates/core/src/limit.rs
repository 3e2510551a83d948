//! Limits of nodes: a number, or a percentage of the nodes that a policy selects.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many of `nodes` may be at work at the same time: at least one; half of them by default; percentages are rounded
/// up. A string that is not a percentage counts as absent: the API refuses it now, but older objects may have one.
pub fn at_once(max_unavailable: Option<&IntOrString>, nodes: usize) -> usize {
    let percent = |percent| nodes.saturating_mul(percent).div_ceil(100);
    let limit = match max_unavailable {
        Some(IntOrString::Int(count)) => usize::try_from(*count).unwrap_or(0),
        Some(IntOrString::String(text)) => percent(parse_percent(text).unwrap_or(50)),
        None => percent(50),
    };
    limit.max(1)
}

/// How many of `nodes` may fail without stopping a rollout; percentages are rounded down. `None` for a string that is
/// not a percentage.
pub fn tolerated(max_failures: &IntOrString, nodes: usize) -> Option<usize> {
    match max_failures {
        IntOrString::Int(count) => usize::try_from(*count).ok(),
        IntOrString::String(text) => parse_percent(text).map(|percent| nodes.saturating_mul(percent) / 100),
    }
}

/// How many of the `nodes` of a MachineConfigPool may be unavailable at the same time, as the machine-config operator
/// counts: at least one; one by default; percentages are rounded down. A string that is not a percentage counts as absent.
pub fn of_pool(max_unavailable: Option<&IntOrString>, nodes: usize) -> usize {
    let limit = match max_unavailable {
        Some(IntOrString::Int(count)) => usize::try_from(*count).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            parse_percent(text).map_or(0, |percent| nodes.saturating_mul(percent) / 100)
        }
        None => 1,
    };
    limit.max(1)
}

fn parse_percent(text: &str) -> Option<usize> {
    text.strip_suffix('%')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn the_default_is_half_of_the_nodes_and_the_minimum_is_one() {
        for (limit, nodes, expected) in [
            (None, 5, 3),
            (None, 6, 3),
            (None, 1, 1),
            (None, 0, 1),
            (Some(text("50%")), 5, 3),
            (Some(text("25%")), 10, 3),
            (Some(text("0%")), 10, 1),
            (Some(text("200%")), 10, 20),
            (Some(IntOrString::Int(0)), 10, 1),
            (Some(IntOrString::Int(-1)), 10, 1),
            (Some(IntOrString::Int(3)), 10, 3),
            (Some(IntOrString::Int(30)), 10, 30),
            (Some(text("42")), 10, 5),
            (Some(text("asdf")), 10, 5),
            (Some(text("-5%")), 10, 5),
        ] {
            assert_eq!(at_once(limit.as_ref(), nodes), expected, "{limit:?} of {nodes}");
        }
    }

    #[test]
    fn the_default_of_a_pool_is_one() {
        for (limit, nodes, expected) in [
            (None, 10, 1),
            (Some(IntOrString::Int(0)), 10, 1),
            (Some(IntOrString::Int(3)), 10, 3),
            (Some(text("25%")), 10, 2),
            (Some(text("5%")), 10, 1),
            (Some(text("3")), 10, 1),
        ] {
            assert_eq!(of_pool(limit.as_ref(), nodes), expected, "{limit:?} of {nodes}");
        }
    }

    #[test]
    fn failures_are_rounded_down() {
        for (limit, nodes, expected) in [
            (IntOrString::Int(0), 10, Some(0)),
            (IntOrString::Int(2), 10, Some(2)),
            (text("5%"), 10, Some(0)),
            (text("25%"), 10, Some(2)),
            (text("much"), 10, None),
        ] {
            assert_eq!(tolerated(&limit, nodes), expected, "{limit:?} of {nodes}");
        }
    }
}
