//! The report loop alone, on the machine that it runs on: for a node of the test rig, to see what it costs.
//!
//! It prints one line of JSON for each network that it would publish. It only reads.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use clap::Parser;
use knmstate_agent::{
    cpu_clock,
    report::Reporter,
    steady::Steady,
    store::{Orders, ReportedNetwork, Store},
};
use knmstate_api::NodeNetworkConfigurationEnactmentStatus;
use knmstate_core::probes::ApiAccess;
use knmstate_host::network_manager::{NetworkManagerHost, Options};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

#[derive(Parser)]
struct Arguments {
    /// The folder that a host on NetworkManager wants.
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

    fn tell(&self, _: &str, _: NodeNetworkConfigurationEnactmentStatus) {}

    fn publish(&self, network: ReportedNetwork) {
        println!(
            "{}",
            json!({ "published": network.state.0, "omitted": network.omitted, "ms": self.elapsed() })
        );
    }

    async fn refresh_wanted(&self) {
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
    let host = NetworkManagerHost::start(Options::new(Arguments::parse().journal)).await?;
    let printer = Printer { began: Instant::now() };
    let reporter = Reporter::new(host, printer, Steady::default()).with_cpu_time(move || {
        // It is looked at before and after each reading, also of one that fails.
        let cpu = cpu_clock::process();
        println!("{}", json!({ "look": cpu.as_millis(), "ms": printer.elapsed() }));
        cpu
    });
    let mut observed = reporter.observed();
    let tell_of_readings = async move {
        while observed.changed().await.is_ok() {
            let interfaces = observed.borrow_and_update().as_ref().map(|state| state.interfaces().count());
            let cpu = cpu_clock::process().as_millis();
            println!("{}", json!({ "read": interfaces, "ms": printer.elapsed(), "cpu_ms": cpu }));
        }
    };
    reporter.run(tell_of_readings).await;
    Ok(())
}
