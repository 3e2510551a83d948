//! The report loop alone, for a node of the test rig, to measure its cost.
//!
//! It prints one line of JSON for each network that it would publish. It only reads.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use clap::Parser;
use knmstate_agent::{ChangeLock, Orders, ReportedNetwork, Reporter, Store, process_cpu_time};
use knmstate_api::NodeNetworkConfigurationEnactmentStatus;
use knmstate_core::probes::ApiAccess;
use knmstate_host::{NetworkManagerHost, NetworkManagerOptions};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

#[derive(Parser)]
struct Arguments {
    /// The directory for the journal of the host.
    #[arg(long)]
    journal: PathBuf,
}

#[derive(Clone, Copy)]
struct Printer {
    began: Instant,
}

impl Store for Printer {
    fn orders(&self) -> watch::Receiver<Option<Arc<Orders>>> {
        watch::channel(None).1
    }

    fn report_status(&self, _: &str, _: NodeNetworkConfigurationEnactmentStatus) {}

    fn publish(&self, network: ReportedNetwork) {
        println!(
            "{}",
            json!({ "published": network.state.0, "omitted": network.omitted, "ms": self.elapsed() })
        );
    }

    async fn refresh_requested(&self) {
        std::future::pending::<()>().await;
    }

    fn api_access(&self) -> ApiAccess {
        ApiAccess::None
    }

    async fn flush(&self, _: Duration) -> bool {
        true
    }
}

impl Printer {
    fn elapsed(&self) -> u128 {
        self.began.elapsed().as_millis()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let host = NetworkManagerHost::start(NetworkManagerOptions::new(Arguments::parse().journal)).await?;
    let printer = Printer { began: Instant::now() };
    let reporter = Reporter::new(host, printer, ChangeLock::default()).with_cpu_time(move || {
        // Called before and after each reading, also one that fails.
        let cpu = process_cpu_time();
        println!("{}", json!({ "look": cpu.as_millis(), "ms": printer.elapsed() }));
        cpu
    });
    let mut observed = reporter.observed();
    let print_readings = async move {
        while observed.changed().await.is_ok() {
            let interfaces = observed.borrow_and_update().as_ref().map(|state| state.interfaces().count());
            let cpu = process_cpu_time().as_millis();
            println!("{}", json!({ "read": interfaces, "ms": printer.elapsed(), "cpu_ms": cpu }));
        }
    };
    Ok(reporter.run(print_readings).await?)
}
