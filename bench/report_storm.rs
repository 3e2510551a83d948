//! The CPU time and memory of the report loop on a real node: when the node is idle, when one thing changes, and while
//! 300 veth pairs are added and removed repeatedly.

use std::{
    fs::read_to_string,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rig::{
    Lab, NmNode,
    process::{Invocation, Process},
    wait,
};
use serde_json::Value;

const IDLE: Duration = Duration::from_secs(30);
const STORM: Duration = Duration::from_mins(1);
const CHANGES: u32 = 20;

const VETHS: &str = r#"
seq 300 | sed 's/.*/link add va& type veth peer name vb&/' >/run/storm.add
seq 300 | sed 's/.*/link del va&/' >/run/storm.del
end=$(($(date +%s) + $1)) rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
    ip -batch /run/storm.add
    ip -batch /run/storm.del
    rounds=$((rounds + 1))
done
echo $rounds
"#;

#[tokio::main]
async fn main() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    let program = build().await?;
    let start = |name: &str| {
        let journal = lab.directory().join("journal").display().to_string();
        let log = lab.directory().join(name);
        let process =
            node.enter(Invocation::new([&program, "--journal", &journal])).start("report_loop", &log)?;
        anyhow::Ok(Agent { process, log })
    };
    let agent = start("report.log")?;
    agent.wait_for_text("10.99.0.", Duration::from_secs(20)).await?;
    // The node has just started: duplicate address detection takes some seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;

    let [cpu, core, readings, failed, published, rss] =
        ["CPU", "of 1 core", "readings", "failed", "published", "peak RSS"];
    println!("{:36}{cpu:>8}{core:>10}{readings:>9}{failed:>7}{published:>10}{rss:>10}", "");
    let idle = async || {
        tokio::time::sleep(IDLE).await;
        Ok(String::new())
    };
    agent.measure("nothing happens", idle).await?;
    let addresses = async || {
        let mut times = Vec::new();
        for number in 1..=CHANGES {
            times.push(one_address(&node, &agent, number).await?.as_millis());
        }
        times.sort_unstable();
        Ok(format!(
            "seen after {} ms (median), {} ms (slowest)",
            times[times.len() / 2],
            times[times.len() - 1]
        ))
    };
    agent.measure("ip addr add, 20 times", addresses).await?;
    let unmanaged = async || {
        let began = now();
        node.exec(["nmcli", "device", "set", "eth1", "managed", "no"]).await?.success()?;
        // The NICs of this node are veths, which are reported only while they are managed.
        agent.wait_until_absent("\"name\":\"eth1\"", Duration::from_secs(20)).await?;
        Ok(format!("seen after {} ms", began.elapsed().as_millis()))
    };
    agent.measure("nmcli device set eth1 managed no", unmanaged).await?;
    agent.wait_until_equal(&start("second.log")?).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;

    let storm = async || {
        let storm = Invocation::new(["sh", "-c", VETHS, "sh", &STORM.as_secs().to_string()]);
        let rounds = node.exec_with(storm, STORM * 3).await?.success()?;
        Ok(format!("{} rounds", rounds.trim()))
    };
    agent.measure("300 pairs of veths, again and again", storm).await?;
    let began = now();
    node.exec(["ip", "addr", "add", "10.96.0.1/24", "dev", "eth2"]).await?.success()?;
    let after = async || {
        agent.wait_for_text("10.96.0.1", Duration::from_mins(5)).await?;
        Ok(format!("seen after {} ms", began.elapsed().as_millis()))
    };
    agent.measure("ip addr add after that", after).await?;
    agent.wait_until_equal(&start("third.log")?).await
}

async fn one_address(node: &NmNode, agent: &Agent, number: u32) -> Result<Duration> {
    let address = format!("10.97.0.{number}");
    let began = now();
    node.exec(["ip", "addr", "add", &format!("{address}/24"), "dev", "eth2"]).await?.success()?;
    agent.wait_for_text(&format!("\"{address}\""), Duration::from_secs(20)).await?;
    Ok(began.elapsed())
}

struct Agent {
    process: Process,
    log: std::path::PathBuf,
}

impl Agent {
    /// Runs `action`, and prints what the report loop did meanwhile, and its CPU time.
    async fn measure(&self, name: &str, action: impl AsyncFnOnce() -> Result<String>) -> Result<()> {
        let (cpu, lines, began) = (self.cpu()?, self.lines()?.len(), now());
        let remark = action().await?;
        let (took, cpu) = (began.elapsed().as_secs_f64(), self.cpu()? - cpu);
        let lines = self.lines()?.split_off(lines);
        let count = |key: &str| lines.iter().filter(|line| line.get(key).is_some()).count();
        let (read, failed) = (count("read"), (count("look") / 2).saturating_sub(count("read")));
        let (published, peak) = (count("published"), self.peak()?);
        let (cpu, core) = (cpu * 1e3, cpu / took * 100.0);
        println!(
            "{name:36}{cpu:>6.0}ms{core:>9.2}%{read:>9}{failed:>7}{published:>10}{peak:>7} kB  {remark}"
        );
        Ok(())
    }

    /// Waits until this report, which was updated by events, equals one that was just read.
    async fn wait_until_equal(&self, reread: &Self) -> Result<()> {
        wait::until(Duration::from_mins(2), "the reports to be equal", async || {
            ensure!(self.last()? == reread.last()?, "{:#}\njust read:\n{:#}", self.last()?, reread.last()?);
            Ok(())
        })
        .await
    }

    /// Waits until the last published report has this text.
    async fn wait_for_text(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{text} to be reported"), async || {
            ensure!(self.last()?.to_string().contains(text), "the report does not have it yet");
            Ok(())
        })
        .await
    }

    async fn wait_until_absent(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{text} to disappear from the report"), async || {
            ensure!(!self.last()?.to_string().contains(text), "the report still has it");
            Ok(())
        })
        .await
    }

    fn last(&self) -> Result<Value> {
        let last = self.lines()?.into_iter().rfind(|line| line.get("published").is_some());
        Ok(last.context("nothing is published yet")?["published"].take())
    }

    fn lines(&self) -> Result<Vec<Value>> {
        let text = read_to_string(&self.log)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The pid of the report loop, which is a child of nsenter.
    fn pid(&self) -> Result<String> {
        let mut pid = self.process.id().to_string();
        while !read_to_string(format!("/proc/{pid}/comm"))?.starts_with("report_loop") {
            let children = read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            children.split_whitespace().next().context("it has ended")?.clone_into(&mut pid);
        }
        Ok(pid)
    }

    /// CPU time in seconds, of all threads, including those that have ended.
    fn cpu(&self) -> Result<f64> {
        let stat = read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        // After the name, which can contain blanks, user and system time are fields 12 and 13, in hundredths of a
        // second.
        let (_, fields) = stat.rsplit_once(')').context("the stat file has no name")?;
        let hundredths = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        Ok(f64::from(hundredths.sum::<Result<u32, _>>()?) / 100.0)
    }

    fn peak(&self) -> Result<String> {
        let status = read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").to_owned())
    }
}

/// Builds the program with optimisations. The rig's own builds have none.
async fn build() -> Result<String> {
    let output = Invocation::new(["cargo", "build", "--quiet", "--release", "--message-format=json"])
        .args(["--package=knmstate-agent", "--example=report_loop"])
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .run(Duration::from_mins(30))
        .await?
        .success()?;
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.filter(|message| message["target"]["name"] == "report_loop");
    built
        .filter_map(|message| Some(message["executable"].as_str()?.to_owned()))
        .next_back()
        .context("cargo built no report_loop")
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
