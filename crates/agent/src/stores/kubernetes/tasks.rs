//! The tasks of the store, none of which should ever end.

use std::{collections::HashMap, future::pending, sync::Arc};

use futures::future::BoxFuture;
use tokio::{sync::watch, task::JoinSet};

/// Running tasks. They are aborted when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    ended: watch::Receiver<Option<String>>,
    _supervisor: Arc<JoinSet<()>>,
}

impl Tasks {
    /// Starts tasks, each with its name.
    pub(super) fn start(tasks: impl IntoIterator<Item = (&'static str, BoxFuture<'static, ()>)>) -> Self {
        let mut running = JoinSet::new();
        let names: HashMap<_, _> =
            tasks.into_iter().map(|(name, task)| (running.spawn(task).id(), name)).collect();
        let (sender, ended) = watch::channel(None);
        let mut supervisor = JoinSet::new();
        supervisor.spawn(async move {
            let (id, how) = match running.join_next_with_id().await {
                None => return,
                Some(Ok((id, ()))) => (id, "has ended"),
                Some(Err(error)) => {
                    (error.id(), if error.is_panic() { "has panicked" } else { "was aborted" })
                }
            };
            sender.send_replace(Some(format!("{} {how}", names.get(&id).unwrap_or(&"a task"))));
            // The others go on until they are aborted with this task.
            pending::<()>().await;
        });
        Self { ended, _supervisor: Arc::new(supervisor) }
    }

    /// Waits until one has ended, and returns which.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await.map(|what| what.clone()) {
            Ok(Some(what)) => what,
            // There are no tasks.
            Ok(None) | Err(_) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_task_that_ends_is_named_and_dropping_ends_all() {
        let forever = || async {
            pending::<()>().await;
        };
        let (alive, aborted) = oneshot::channel::<()>();
        let guarded = async move {
            let _alive = alive;
            pending::<()>().await;
        };
        let tasks = Tasks::start([("one", forever().boxed()), ("two", guarded.boxed())]);
        assert!(timeout(Duration::from_mins(1), tasks.ended()).await.is_err());
        let clone = tasks.clone();
        drop(tasks);
        assert!(timeout(Duration::from_mins(1), clone.ended()).await.is_err());
        drop(clone);
        aborted.await.unwrap_err();

        let tasks = Tasks::start([("one", forever().boxed()), ("two", async { panic!("a bug") }.boxed())]);
        assert_eq!(tasks.ended().await, "two has panicked");
        assert_eq!(tasks.clone().ended().await, "two has panicked");
        let tasks = Tasks::start([("one", forever().boxed()), ("two", async {}.boxed())]);
        assert_eq!(tasks.ended().await, "two has ended");
    }
}
