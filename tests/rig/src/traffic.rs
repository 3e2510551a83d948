//! Counts the requests of an API server, from its metrics.

use anyhow::Result;

use crate::ApiServer;

/// The requests and watch events for the product's kinds since the API server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that create, change or delete, including those that failed.
    pub writes: u64,
    /// Writes that were refused because another client had changed the object.
    pub conflicts: u64,
    /// Requests that list a collection.
    pub lists: u64,
    /// Events that were sent to watching clients.
    pub watch_events: u64,
}

impl Traffic {
    /// The difference to an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            conflicts: self.conflicts - before.conflicts,
            lists: self.lists - before.lists,
            watch_events: self.watch_events - before.watch_events,
        }
    }
}

impl ApiServer {
    /// The requests of all clients for the product's kinds so far.
    pub async fn traffic(&self) -> Result<Traffic> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(read(&self.client().request_text(request).await?))
    }
}

fn read(metrics: &str) -> Traffic {
    let mut traffic = Traffic::default();
    for line in metrics.lines().filter(|line| line.contains("group=\"nmstate.io\"")) {
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        if line.starts_with("apiserver_watch_events_total{") {
            traffic.watch_events += count;
        }
        if !line.starts_with("apiserver_request_total{") {
            continue;
        }
        let is = |verb: &str| line.contains(&format!("verb=\"{verb}\""));
        if ["APPLY", "PATCH", "POST", "PUT", "DELETE"].into_iter().any(is) {
            traffic.writes += count;
            traffic.conflicts += if line.contains("code=\"409\"") { count } else { 0 };
        }
        if is("LIST") {
            traffic.lists += count;
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_about_our_kinds_is_counted() {
        let line = |metric: &str, labels: &str, count: u32| format!("{metric}{{{labels}}} {count}");
        let metrics = [
            line("apiserver_request_total", "code=\"201\",group=\"nmstate.io\",verb=\"APPLY\"", 1),
            line("apiserver_request_total", "code=\"409\",group=\"nmstate.io\",verb=\"PUT\"", 10),
            line("apiserver_request_total", "code=\"200\",group=\"nmstate.io\",verb=\"LIST\"", 100),
            line("apiserver_request_total", "code=\"200\",group=\"nmstate.io\",verb=\"GET\"", 1000),
            line("apiserver_request_total", "code=\"200\",group=\"\",verb=\"PUT\"", 10000),
            line("apiserver_watch_events_total", "group=\"nmstate.io\",resource=\"x\"", 7),
        ];
        let expected = Traffic { writes: 11, conflicts: 10, lists: 100, watch_events: 7 };
        assert_eq!(read(&metrics.join("\n")), expected);
        let later = Traffic { writes: 20, ..expected };
        assert_eq!(later.since(&expected), Traffic { writes: 9, ..Traffic::default() });
    }
}
