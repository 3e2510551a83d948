//! Whether a node is Ready, by a report from after the change.

use jiff::Timestamp;

/// The readiness of a node in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReadiness {
    /// Why it is not Ready; `None` if it is.
    pub not_ready: Option<String>,
    /// When its kubelet last renewed its lease; `None` if there is no lease.
    pub renewed: Option<Timestamp>,
}

/// Distinguishes reports from after a change from older ones.
///
/// A node that has lost its connection to the API server stays Ready there for up to a minute. Only a renewal of the
/// kubelet's lease after the change proves that the node is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    changed_at: Timestamp,
    first: Option<Timestamp>,
}

impl Evidence {
    /// For a change at this time.
    pub fn after(changed_at: Timestamp) -> Self {
        Self { changed_at, first: None }
    }

    /// Whether the node is Ready and has renewed its lease since the change; an error says why not.
    ///
    /// To be called for each reading in turn, all from after the change: a renewal that the first reading did not have is
    /// new, even if the clock was set back.
    pub fn judge(&mut self, node: &NodeReadiness) -> Result<(), String> {
        if let Some(why) = &node.not_ready {
            return Err(why.clone());
        }
        let Some(renewed) = node.renewed else { return Ok(()) };
        let first = *self.first.get_or_insert(renewed);
        if renewed > self.changed_at || renewed != first {
            Ok(())
        } else {
            Err(format!("its kubelet has not renewed its lease since the change (last at {renewed:.0})"))
        }
    }
}

impl NodeReadiness {
    /// Whether the node is Ready, before a change; an error says why not.
    pub fn is_ready(&self) -> Result<(), String> {
        self.not_ready.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn only_a_renewal_after_the_change_proves_a_node_ready() {
        let silent = "its kubelet has not renewed its lease since the change (last at 1970-01-01T00:01:30Z)";
        let not_ready = || Some("the node is not Ready: PLEG".to_owned());
        // The change was at 100 s.
        for (name, readings, expected) in [
            ("renewed after the change", &[(None, Some(101))][..], Ok(())),
            ("renewed only before", &[(None, Some(90)), (None, Some(90))], Err(silent)),
            ("renewed after a while", &[(None, Some(90)), (None, Some(105))], Ok(())),
            ("renewed, but the clock was set back", &[(None, Some(90)), (None, Some(20))], Ok(())),
            ("no lease", &[(None, None)], Ok(())),
            ("not ready, though renewed", &[(not_ready(), Some(101))], Err("the node is not Ready: PLEG")),
        ] {
            let mut evidence = Evidence::after(at(100));
            let mut result = Err("no reading".to_owned());
            for (not_ready, renewed) in readings {
                result =
                    evidence.judge(&NodeReadiness { not_ready: not_ready.clone(), renewed: renewed.map(at) });
            }
            assert_eq!(result, expected.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn before_a_change_an_old_renewal_is_enough() {
        assert_eq!(NodeReadiness { not_ready: None, renewed: Some(at(1)) }.is_ready(), Ok(()));
        let why = "the node is not Ready".to_owned();
        assert_eq!(NodeReadiness { not_ready: Some(why.clone()), renewed: None }.is_ready(), Err(why));
    }
}
