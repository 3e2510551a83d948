//! What the report loop costs on a real node: when nothing happens, when one thing happens, and when 300 pairs of
//! veths come and go without end.

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
        let journal = lab.folder().join("journal").display().to_string();
        let log = lab.folder().join(name);
        let process =
            node.enter(Invocation::new([&program, "--journal", &journal])).start("report_loop", &log)?;
        anyhow::Ok(Agent { process, log })
    };
    let agent = start("report.log")?;
    agent.shows("10.99.0.", Duration::from_secs(20)).await?;
    // The node has just started: addresses are still being checked for duplicates.
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
        // The card of a node in the rig is one end of a veth, and such are shown only if they are managed.
        agent.shows_no_longer("\"name\":\"eth1\"", Duration::from_secs(20)).await?;
        Ok(format!("seen after {} ms", began.elapsed().as_millis()))
    };
    agent.measure("nmcli device set eth1 managed no", unmanaged).await?;
    agent.agrees_with(&start("second.log")?).await?;
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
        agent.shows("10.96.0.1", Duration::from_mins(5)).await?;
        Ok(format!("seen after {} ms", began.elapsed().as_millis()))
    };
    agent.measure("ip addr add after that", after).await?;
    agent.agrees_with(&start("third.log")?).await
}

async fn one_address(node: &NmNode, agent: &Agent, number: u32) -> Result<Duration> {
    let address = format!("10.97.0.{number}");
    let began = now();
    node.exec(["ip", "addr", "add", &format!("{address}/24"), "dev", "eth2"]).await?.success()?;
    agent.shows(&format!("\"{address}\""), Duration::from_secs(20)).await?;
    Ok(began.elapsed())
}

struct Agent {
    process: Process,
    log: std::path::PathBuf,
}

impl Agent {
    /// Runs `scene`, and prints what it has cost.
    async fn measure(&self, name: &str, scene: impl AsyncFnOnce() -> Result<String>) -> Result<()> {
        let (cpu, lines, began) = (self.cpu()?, self.lines()?.len(), now());
        let remark = scene().await?;
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

    /// A report that has seen everything come says the same as one that has just begun.
    async fn agrees_with(&self, fresh: &Self) -> Result<()> {
        wait::until(Duration::from_mins(2), "two reports to agree", async || {
            ensure!(
                self.last()? == fresh.last()?,
                "{:#}\nand freshly read\n{:#}",
                self.last()?,
                fresh.last()?
            );
            Ok(())
        })
        .await
    }

    /// Waits until the last published network has this in it.
    async fn shows(&self, words: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{words} to be reported"), async || {
            ensure!(self.last()?.to_string().contains(words), "not in it yet");
            Ok(())
        })
        .await
    }

    async fn shows_no_longer(&self, words: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{words} to be reported no longer"), async || {
            ensure!(!self.last()?.to_string().contains(words), "still in it");
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

    /// The process itself; what was started is the nsenter that it is a child of.
    fn pid(&self) -> Result<String> {
        let mut pid = self.process.id().to_string();
        while !read_to_string(format!("/proc/{pid}/comm"))?.starts_with("report_loop") {
            let children = read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            children.split_whitespace().next().context("it has ended")?.clone_into(&mut pid);
        }
        Ok(pid)
    }

    /// Seconds of CPU time so far, of all threads there are and were.
    fn cpu(&self) -> Result<f64> {
        let stat = read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        // After the name, which may contain blanks: user and system time are the 12th and 13th, in hundredths.
        let (_, fields) = stat.rsplit_once(')').context("no name")?;
        let hundredths = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        Ok(f64::from(hundredths.sum::<Result<u32, _>>()?) / 100.0)
    }

    fn peak(&self) -> Result<String> {
        let status = read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").to_owned())
    }
}

/// The program with its optimisations; the rig builds what it uses without them.
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
        .context("not built")
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
