//! What is heard in the node while the handler is watched: what it asks, and what it may have had a reason to ask for.

use anyhow::Result;
use rig::{
    Lab, NmNode,
    process::{Invocation, Process},
};

pub struct Ears {
    calls: Process,
    kernel: Process,
    signals: Process,
}

/// How much of it has been told so far.
#[derive(Clone, Copy)]
pub struct Mark {
    kernel: usize,
    signals: usize,
}

impl Ears {
    pub fn open(lab: &Lab, node: &NmNode) -> Result<Self> {
        let start = |name: &str, command: &[&str]| {
            let log = lab.folder().join(format!("heard-{name}.log"));
            node.enter(Invocation::new(command.iter().copied())).start(name, &log)
        };
        let calls = "type='method_call',destination='org.freedesktop.NetworkManager'";
        let signals = "type='signal',sender='org.freedesktop.NetworkManager'";
        Ok(Self {
            calls: start("calls", &["dbus-monitor", "--system", calls])?,
            kernel: start("kernel", &["ip", "-ts", "monitor", "link", "address", "route", "rule"])?,
            signals: start("signals", &["dbus-monitor", "--system", signals])?,
        })
    }

    /// How often NetworkManager was asked something; each reading does so many times.
    pub fn calls(&self) -> usize {
        lines(&self.calls, "method call").len()
    }

    pub fn mark(&self) -> Mark {
        Mark { kernel: lines(&self.kernel, "").len(), signals: lines(&self.signals, "signal").len() }
    }

    /// What the kernel and NetworkManager have told since then.
    pub fn since(&self, mark: Mark) -> Vec<String> {
        let kernel = lines(&self.kernel, "").into_iter().skip(mark.kernel);
        kernel.chain(lines(&self.signals, "signal").into_iter().skip(mark.signals)).collect()
    }
}

fn lines(heard: &Process, beginning: &str) -> Vec<String> {
    let log = heard.log_tail(usize::MAX);
    log.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
}
