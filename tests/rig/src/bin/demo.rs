//! `make demo`: what is there today, on real parts, in under a minute.

use anyhow::{Context, Result, ensure};
use rig::{ApiServer, Lab, UmlNode, binaries, machine::rig_file};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<()> {
    tokio::select! {
        result = show() => result,
        interrupted = tokio::signal::ctrl_c() => {
            println!("\ninterrupted: everything that was started is gone");
            Ok(interrupted?)
        }
    }
}

async fn show() -> Result<()> {
    println!("Starting an API server, and a node with a kernel and a NetworkManager of");
    println!("its own. All of it lives in namespaces and is gone at the end.");
    let program = binaries::apply_state().await?;
    let lab = Lab::new().await?;
    let (api, node) = tokio::try_join!(lab.api_server().start(), lab.uml_node("node1").start())?;

    title("The API");
    let (policy, refused) = (file("examples/quickstart"), file("examples/refused"));
    println!("\x1b[1m$ kubectl apply -f deploy/crds\x1b[0m\n{}", api.install_crds().await?);
    kubectl(&api, &["explain", "nncp.spec.rollout.canary"], true).await?;

    title("A policy: a bond of two cards, a VLAN on top");
    kubectl(&api, &["apply", "-f", &policy], true).await?;
    kubectl(&api, &["get", "nncp"], true).await?;

    title("A policy with a mistake is refused, with the reason");
    kubectl(&api, &["apply", "-f", &refused], false).await?;

    title("The same desired state on a node: nmstate and NetworkManager");
    println!("(The controller and the handler that will do this are not there yet.)\n");
    links(&node).await?;
    let desired = stored_desired_state(&api).await?;
    println!("\napplying …\n");
    node.run_binary(&program, [""; 0], desired.to_string()).await?.success()?;
    links(&node).await?;

    title("Done");
    println!("Next: make cluster (a cluster to play with), make test, ARCHITECTURE.md.");
    Ok(())
}

fn title(text: &str) {
    println!("\n\x1b[1m── {text}\x1b[0m\n");
}

fn file(path: &str) -> String {
    rig_file("../..").join(path).canonicalize().unwrap_or_default().display().to_string()
}

/// Shows the command as a user would type it, and what it answers.
async fn kubectl(api: &ApiServer, arguments: &[&str], succeeds: bool) -> Result<()> {
    let here = file("");
    let typed: Vec<String> = arguments
        .iter()
        .map(|argument| argument.replace(here.trim_end_matches('/'), ".").replace("./", ""))
        .collect();
    println!("\x1b[1m$ kubectl {}\x1b[0m", typed.join(" "));
    let answer = api.kubectl(arguments.iter().copied()).await?;
    for line in answer.stdout().lines().chain(answer.stderr().lines()) {
        println!("{line}");
    }
    println!();
    ensure!(
        answer.status.success() == succeeds,
        "kubectl {} was to {}",
        typed.join(" "),
        if succeeds { "work" } else { "be refused" }
    );
    Ok(())
}

async fn stored_desired_state(api: &ApiServer) -> Result<Value> {
    let policy = api.kubectl(["get", "nncp", "bond-with-vlan", "-o", "json"]).await?.json()?;
    policy.pointer("/spec/desiredState").cloned().context("the policy has no desired state")
}

async fn links(node: &UmlNode) -> Result<()> {
    println!("\x1b[1m[{}]$ ip -brief address\x1b[0m", node.name());
    print!("{}", node.exec(["ip", "-brief", "address"]).await?.success()?);
    Ok(())
}
