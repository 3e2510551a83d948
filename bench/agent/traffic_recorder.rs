//! Records in the node what the handler asks NetworkManager, and the notifications that it may have reacted to.

use anyhow::Result;
use rig::{
    Lab, NmNode,
    process::{Invocation, Process},
};

/// Records calls of NetworkManager, its signals, and notifications of the kernel, until it is dropped.
pub struct TrafficRecorder {
    calls: Process,
    kernel: Process,
    signals: Process,
}

/// A position in the records.
#[derive(Clone, Copy)]
pub struct Mark {
    kernel: usize,
    signals: usize,
}

impl TrafficRecorder {
    pub fn start(lab: &Lab, node: &NmNode) -> Result<Self> {
        let start = |name: &str, command: &[&str]| {
            let log = lab.directory().join(format!("recorded-{name}.log"));
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

    /// The number of method calls of NetworkManager. Reading the network once takes many.
    pub fn calls(&self) -> usize {
        lines(&self.calls, "method call").len()
    }

    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark { kernel: lines(&self.kernel, "").len(), signals: lines(&self.signals, "signal").len() }
    }

    /// The notifications of the kernel and the signals of NetworkManager since a position.
    pub fn since(&self, mark: Mark) -> Vec<String> {
        let kernel = lines(&self.kernel, "").into_iter().skip(mark.kernel);
        kernel.chain(lines(&self.signals, "signal").into_iter().skip(mark.signals)).collect()
    }
}

fn lines(recorder: &Process, prefix: &str) -> Vec<String> {
    let log = recorder.log_tail(usize::MAX);
    log.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}
