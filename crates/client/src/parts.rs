//! The parts of a process: tasks that do not end by themselves. If one does, the process has to end, because what the part
//! did would never be done again.

use std::{collections::HashMap, error::Error, fmt};

use tokio::task::{Id, JoinSet};

/// The tasks, which end when this is dropped.
#[derive(Debug, Default)]
pub struct Parts {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// A part that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEnded {
    pub name: &'static str,
    pub panicked: bool,
}

impl fmt::Display for PartEnded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.panicked { "panicked" } else { "ended" };
        write!(formatter, "a part of the process has {how}: {}", self.name)
    }
}

impl Error for PartEnded {}

impl Parts {
    /// Starts a part.
    pub fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(part);
        self.names.insert(task.id(), name);
    }

    /// Waits until a part has ended; for ever if there is none.
    pub async fn ended(&mut self) -> PartEnded {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let (id, panicked) = match ended {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        PartEnded { name: self.names.remove(&id).unwrap_or_default(), panicked }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_is_named() {
        let mut parts = Parts::default();
        parts.spawn("lasts", pending());
        parts.spawn("ends", async {});
        let ended = parts.ended().await;
        assert_eq!(ended, PartEnded { name: "ends", panicked: false });
        assert_eq!(ended.to_string(), "a part of the process has ended: ends");
        parts.spawn("panics", async { panic!("as a test wants it") });
        let ended = parts.ended().await;
        assert_eq!(ended.to_string(), "a part of the process has panicked: panics");
    }
}
