//! Tests the host on NetworkManager on the machine that it runs on: for a node of the test rig, never for a
//! machine in use.
//!
//! It prints one line of JSON per finding. Documents come on standard input.

use knmstate_document::NetworkState;
use std::io::{Read as _, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use knmstate_host::{Checkpoint, Guard, Host as _, HostError};
use knmstate_host::{NetworkManagerHost, NetworkManagerLimits, NetworkManagerOptions};
use knmstate_simulated_host::laws::{self, LawSetup};
use serde_json::json;
use tokio::time::{Instant, timeout};

#[derive(Parser)]
struct Arguments {
    /// The directory of the journal.
    #[arg(long)]
    journal: PathBuf,
    /// The limit of one reading of the state, in seconds.
    #[arg(long, default_value_t = 30)]
    observe_limit: u64,
    /// How many times longer than usual the machine may take for everything.
    #[arg(long, default_value_t = 1)]
    slowness: u32,
    /// Keep changes in NetworkManager's memory.
    #[arg(long)]
    memory_only: bool,
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Subcommand)]
enum Trial {
    /// Checks all laws, on a NIC that they may change.
    Laws { nic: String },
    /// Applies a document, says so, and then waits to be killed.
    BeginAndWait {
        #[arg(long)]
        deadline: u64,
    },
    /// Applies a document, and commits or rolls back.
    Change {
        #[arg(long)]
        deadline: u64,
        #[arg(long)]
        roll_back: bool,
        /// Reads the state all the time while it is applied, and says how long the slowest reading took.
        #[arg(long)]
        look_meanwhile: bool,
    },
    /// Says what applying a document would change.
    Plan,
    /// Says what the machine can do.
    Abilities,
    /// Reads the state.
    Observe,
    /// Lists what is open.
    List,
    /// Commits a change of an earlier process.
    Commit { checkpoint: String },
    /// Rolls back a change of an earlier process.
    RollBack { checkpoint: String },
    /// Prints what comes to those who watch, until nothing has come for a time.
    Events {
        #[arg(long)]
        silence_ms: u64,
    },
    /// Prints the versions.
    Versions,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        // Not by returning it: what is wrong would be lost in the backtrace that is printed with it.
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let arguments = Arguments::parse();
    let mut options = NetworkManagerOptions::new(arguments.journal);
    options.memory_only = arguments.memory_only;
    let slowness = arguments.slowness;
    let usual = NetworkManagerLimits::default();
    options.limits = NetworkManagerLimits {
        observe: Duration::from_secs(arguments.observe_limit) * slowness,
        answer: usual.answer * slowness,
        roll_back: usual.roll_back * slowness,
        settle: usual.settle * slowness,
    };
    let host = NetworkManagerHost::start(options).await?;
    let began = Instant::now();
    let finding = match arguments.trial {
        Trial::Laws { nic } => {
            laws::all(&host, &LawSetup::on(nic).slower(slowness)).await.map(|()| json!("the laws hold"))?
        }
        Trial::BeginAndWait { deadline } => {
            let result = host.begin(&document()?, Duration::from_secs(deadline)).await;
            println!("{}", outcome(result.as_ref().map(Checkpoint::as_str)));
            std::future::pending().await
        }
        Trial::Change { deadline, roll_back, look_meanwhile } => {
            let looks = look_meanwhile.then(|| tokio::spawn(look_until_refused(host.clone())));
            match host.begin(&document()?, Duration::from_secs(deadline)).await {
                Err(error) => {
                    let mut finding = outcome(Err::<(), _>(&error));
                    if let Some(looks) = looks {
                        let (took, end) = looks.await?;
                        finding["look"] = json!({ "ms": took.as_millis(), "end": end });
                    }
                    finding
                }
                Ok(checkpoint) => {
                    let begun = began.elapsed();
                    let settled = if roll_back {
                        host.roll_back(&checkpoint).await
                    } else {
                        host.commit(&checkpoint).await
                    };
                    let mut finding = outcome(settled.as_ref());
                    finding["checkpoint"] = json!(checkpoint.as_str());
                    finding["begin_ms"] = json!(begun.as_millis());
                    finding
                }
            }
        }
        Trial::Plan => outcome(host.plan(&document()?).await.as_ref().map(|plan| &plan.difference)),
        Trial::Abilities => json!({ "bridgeVlanFiltering": host.abilities().await.bridge_vlan_filtering }),
        Trial::Observe => outcome(host.observe().await.as_ref()),
        Trial::List => {
            let open = host.open_checkpoints().await?;
            let open = open.iter().map(|open| {
                let guard = match open.guard {
                    Guard::RollsBackIn(left) => json!(left.as_millis()),
                    Guard::Lost => json!("lost"),
                };
                json!({ "checkpoint": open.checkpoint.as_str(), "ours": open.ours, "guard": guard })
            });
            open.collect()
        }
        Trial::Commit { checkpoint } => outcome(host.commit(&Checkpoint::new(checkpoint)).await.as_ref()),
        Trial::RollBack { checkpoint } => {
            outcome(host.roll_back(&Checkpoint::new(checkpoint)).await.as_ref())
        }
        Trial::Events { silence_ms } => {
            let mut events = host.events();
            println!("{}", json!("watching"));
            while let Ok(Some(changes)) = timeout(Duration::from_millis(silence_ms), events.next()).await {
                println!("{}", json!(format!("{changes:?}")));
            }
            json!("silence")
        }
        Trial::Versions => {
            let versions = host.versions().await;
            json!({ "nmstate": versions.nmstate, "networkManager": versions.network_manager })
        }
    };
    let mut finding = finding;
    if let Some(map) = finding.as_object_mut() {
        map.insert("ms".to_owned(), json!(began.elapsed().as_millis()));
    }
    println!("{finding}");
    Ok(())
}

/// Reads again and again until that fails; how long the slowest took, and how the last one failed.
async fn look_until_refused(host: NetworkManagerHost) -> (Duration, String) {
    let mut slowest = Duration::ZERO;
    loop {
        let began = Instant::now();
        let read = host.observe().await;
        slowest = slowest.max(began.elapsed());
        if let Err(error) = read {
            return (slowest, error.to_string());
        }
    }
}

fn document() -> Result<NetworkState> {
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    if text.is_empty() {
        bail!("a document is expected on standard input");
    }
    Ok(NetworkState::parse(serde_json::from_str(&text).context("the document")?)?)
}

fn outcome<T: serde::Serialize>(result: Result<T, &HostError>) -> serde_json::Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => {
            let debug = format!("{error:?}");
            let kind = debug.split([' ', '{', '(']).next();
            json!({ "error": kind, "text": error.to_string(), "retry": error.is_retryable() })
        }
    }
}
