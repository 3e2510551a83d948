//! Whether a node is Ready, and knows it from after the change.

use jiff::Timestamp;

/// What the API server says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Why it is not Ready; `None` if it is.
    pub not_ready: Option<String>,
    /// When its kubelet last said that it is alive; `None` where kubelets do not say so.
    pub renewed: Option<Timestamp>,
}

/// What tells news of a node from what was written before the change.
///
/// A node whose way to the API server has just been cut is still called Ready there, for the better part of a minute.
/// Only a sign of life that its kubelet gave after the change proves anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    changed_at: Timestamp,
    first: Option<Timestamp>,
}

impl Evidence {
    /// News are signs of life from after this moment.
    pub fn after(changed_at: Timestamp) -> Self {
        Self { changed_at, first: None }
    }

    /// Judges one look at the node. Looks are judged one after the other, all from after the change: a sign of life
    /// that was not there at the first of them is new, too, even if the clock was set back meanwhile.
    pub fn judge(&mut self, node: &NodeSeen) -> Result<(), String> {
        if let Some(why) = &node.not_ready {
            return Err(why.clone());
        }
        let Some(renewed) = node.renewed else { return Ok(()) };
        let first = *self.first.get_or_insert(renewed);
        if renewed > self.changed_at || renewed != first {
            Ok(())
        } else {
            Err(format!("its kubelet has not been heard of since the change (last at {renewed:.0})"))
        }
    }
}

impl NodeSeen {
    /// Judges a look at the node when there is no change that it could be older than.
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
    fn only_what_was_written_after_the_change_proves_a_node_ready() {
        let silent = "its kubelet has not been heard of since the change (last at 1970-01-01T00:01:30Z)";
        let not_ready = || Some("the node is not Ready: PLEG".to_owned());
        // The change was at 100 s.
        for (name, looks, expected) in [
            ("heard of later", &[(None, Some(101))][..], Ok(())),
            ("heard of before only", &[(None, Some(90)), (None, Some(90))], Err(silent)),
            ("heard of in the end", &[(None, Some(90)), (None, Some(105))], Ok(())),
            ("heard of, but the clock was set back", &[(None, Some(90)), (None, Some(20))], Ok(())),
            ("where kubelets keep no lease", &[(None, None)], Ok(())),
            ("not ready, though heard of", &[(not_ready(), Some(101))], Err("the node is not Ready: PLEG")),
        ] {
            let mut evidence = Evidence::after(at(100));
            let mut judgement = Err("nobody looked".to_owned());
            for (not_ready, renewed) in looks {
                judgement =
                    evidence.judge(&NodeSeen { not_ready: not_ready.clone(), renewed: renewed.map(at) });
            }
            assert_eq!(judgement, expected.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn before_a_change_old_news_are_good_news() {
        assert_eq!(NodeSeen { not_ready: None, renewed: Some(at(1)) }.is_ready(), Ok(()));
        let why = "the node is not Ready".to_owned();
        assert_eq!(NodeSeen { not_ready: Some(why.clone()), renewed: None }.is_ready(), Err(why));
    }
}
