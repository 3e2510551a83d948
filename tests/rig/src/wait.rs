//! Waiting for a condition, always with a deadline.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// An error that waiting cannot change: [`until`] returns it at once.
#[derive(Debug)]
pub struct Fatal(pub String);

impl fmt::Display for Fatal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Fatal {}

/// Repeats `attempt` every 20 ms until it succeeds. Fails with its last error when `limit` has passed, and at once with
/// an error that is [`Fatal`]. `what` completes "waiting for".
pub async fn until<T>(limit: Duration, what: &str, mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last = anyhow!("the first attempt did not end");
    loop {
        match timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is::<Fatal>() => {
                return Err(error).with_context(|| format!("waiting for {what}"));
            }
            Ok(Err(error)) => last = error,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(last).with_context(|| format!("waited {limit:?} for {what}"));
        }
        sleep(Duration::from_millis(20)).await;
    }
}
