//! `knmstate remove`: removes everything that an operator has created.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use knmstate_operator::remove_all;
use tokio::time::timeout;

use super::{on_runtime, operator::Place};
use crate::logging;

/// Remove knmstate from a cluster.
///
/// The operator goes first, then everything that it has created, then every NMState. The networks of the nodes stay as they
/// are, and so do policies and the definitions of the kinds.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    place: Place,

    /// How long to wait until everything is gone, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    timeout: u64,

    /// The format of the log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: logging::Format,
}

pub fn run(args: Args) -> Result<()> {
    logging::start(args.log_format, logging::Verbosity::default(), &[]).context("cannot set up logging")?;
    on_runtime(remove(args))
}

async fn remove(args: Args) -> Result<()> {
    let config = args.place.config();
    let client = args.place.client().await?;
    let work = async {
        let count = remove_all(&client, &config).await.context("cannot remove everything")?;
        tracing::info!(
            "removed {count} objects; policies, node states and their definitions are still there"
        );
        anyhow::Ok(())
    };
    match timeout(Duration::from_secs(args.timeout), work).await {
        Ok(done) => done,
        Err(_) => bail!(
            "not everything was gone after {} s; what is left goes when this command is run again",
            args.timeout
        ),
    }
}
