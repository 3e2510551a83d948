//! `knmstate render machineconfig`: a policy as files of NetworkManager, brought to the nodes of a pool by OpenShift.

use std::path::{Path, PathBuf};

use knmstate_api::{Drift, Mode, NodeNetworkConfigurationPolicySpec, OnDelete};
use knmstate_core::{bridge_defaults, join};
use knmstate_document::NetworkState;
use knmstate_offline::keyfiles;
use serde_json::Value;

use super::{
    Rendered,
    ignition::{Config, File},
    input::{self, Document},
    names, object,
};

const DIRECTORY: &str = "/etc/NetworkManager/system-connections";
/// Readable by root alone: NetworkManager takes no other, and there may be passwords in it.
const MODE: u32 = 0o600;

const LIMITS: &str = "\
Rendered files are the same for every node of the pool and are written without
asking any. So what needs a node is refused: captures, values and nodeValues,
anything that is to be absent or down, interfaces without a type. A route needs
its interface in the same document, name servers need one with addresses.

The machine-config-operator writes the files and reboots the nodes of the pool,
one after the other. Nothing is probed and nothing is rolled back: use a policy
in the cluster wherever that is enough.

Exit codes: 0 done; 1 a file cannot be read or written; 2 the document cannot be
understood or not be rendered.";

/// Write a MachineConfig that gives all nodes of a pool the network of a policy, from their first boot on.
///
/// The policy becomes NetworkManager keyfiles, as Ignition 3.4 files. The same policy gives the same bytes, so that
/// rendering it again does not reboot anything. Several policies in one file become one MachineConfig.
#[derive(clap::Args)]
#[command(after_help = LIMITS)]
pub(super) struct Args {
    /// The policy, or policies, or a bare nmstate state, as YAML or JSON; - is standard input.
    #[arg(long, short, value_name = "FILE")]
    pub(super) file: PathBuf,

    /// The MachineConfigPool whose nodes get it, such as worker or master.
    #[arg(long, value_name = "NAME", value_parser = names::pool)]
    pub(super) pool: String,

    /// The name of the MachineConfig; 99-POOL-nmstate-POLICY if not given.
    #[arg(long, value_name = "NAME", value_parser = names::object)]
    pub(super) name: Option<String>,

    /// Write to this file, readable by you alone, instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn render(args: &Args, text: &str) -> Result<Rendered, String> {
    let shown = if args.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    let at = |why: String| format!("{shown}: {why}");
    let documents = input::documents(text).map_err(at)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(&documents, &args.file, &args.pool).map_err(at)?,
    };
    let mut states = Vec::new();
    let mut remarks = Vec::new();
    for document in &documents {
        let at = |why: String| at(format!("{}: {why}", document.label));
        states.push(state(&document.spec).map_err(at)?);
        remarks.extend(ignored(&document.spec, &args.pool).map(at));
    }
    let joined = join::join(states.iter().map(NetworkState::sections))
        .map_err(|conflict| at(format!("{}: the policies contradict each other here", conflict.path)))?;
    // Blame falls on the one policy, if there is just one.
    let at = |why: String| match &documents[..] {
        [only] => at(format!("{}: {why}", only.label)),
        _ => at(why),
    };
    let desired = NetworkState::parse(Value::Object(joined)).map_err(|error| at(error.to_string()))?;
    let files = keyfiles::keyfiles(&desired).map_err(|error| at(error.to_string()))?;
    if files.is_empty() {
        return Err(at("desiredState: there is nothing in it that a node could be given".to_owned()));
    }
    remarks.extend(keyfiles::remarks(&desired).into_iter().map(at));
    let files =
        files.iter().map(|file| File::new(format!("{DIRECTORY}/{}", file.name), MODE, &file.text)).collect();
    let object = object::machine_config(&name, &args.pool, &Config::new(files, Vec::new()));
    Ok(Rendered { object, remarks })
}

/// A bare state is named after its file.
fn default_name(documents: &[Document], file: &Path, pool: &str) -> Result<String, String> {
    let name = match documents {
        [only] => only.name.clone().or_else(|| Some(file.file_stem()?.to_str()?.to_owned())),
        _ => return Err("there are several policies in it; name the MachineConfig by --name".to_owned()),
    };
    let name = name.filter(|name| name != "-");
    let name = name.ok_or("the state has no name; name the MachineConfig by --name")?;
    names::object(&format!("99-{pool}-nmstate-{name}"))
        .map_err(|why| format!("the name of the MachineConfig would be {why}; give another one by --name"))
}

/// The desired state of a policy, as it is on every node of the pool.
fn state(spec: &NodeNetworkConfigurationPolicySpec) -> Result<NetworkState, String> {
    let advice = "leave it to a policy in the cluster, or write what it stands for into desiredState";
    for (key, is_used, what) in [
        (
            "capture",
            !spec.capture.is_empty(),
            "captures are taken from the network of a node, and none is asked here",
        ),
        (
            "values",
            !spec.values.is_empty(),
            "values are filled in for each node, and all nodes of a pool get the same files",
        ),
        ("nodeValues", !spec.node_values.is_empty(), "all nodes of a pool get the same files"),
    ] {
        if is_used {
            return Err(format!("spec.{key}: {what}; {advice}"));
        }
    }
    let mut desired = spec.desired_state.clone().unwrap_or_default().0;
    if desired.is_empty() {
        return Err("desiredState: it is empty; there is nothing to render".to_owned());
    }
    bridge_defaults::fill(&mut desired);
    let desired = NetworkState::parse(Value::Object(desired)).map_err(|error| error.to_string())?;
    keyfiles::refuse_what_no_file_can_say(&desired).map_err(|error| error.to_string())?;
    Ok(desired)
}

/// What a MachineConfig has no place for.
fn ignored(spec: &NodeNetworkConfigurationPolicySpec, pool: &str) -> impl Iterator<Item = String> {
    let role = format!("node-role.kubernetes.io/{pool}");
    let is_of_pool = spec.node_selector.iter().all(|(key, value)| *key == role && value.is_empty());
    let selects = (!is_of_pool || spec.node_label_selector.is_some()).then(|| {
        format!("the policy selects nodes, but all nodes of the pool {pool} get the files: the pool decides")
    });
    let unused: Vec<&str> = [
        ("maxUnavailable", spec.max_unavailable.is_some()),
        ("rollout", spec.rollout.is_some()),
        ("probes", !spec.probes.is_empty()),
        ("drift", spec.drift != Drift::default()),
        ("onDelete", spec.on_delete != OnDelete::default()),
        ("mode", spec.mode != Mode::default()),
    ]
    .into_iter()
    .filter_map(|(key, is_used)| is_used.then_some(key))
    .collect();
    let unused = (!unused.is_empty())
        .then(|| format!("{} of the policy has no effect in a MachineConfig", unused.join(", ")));
    selects.into_iter().chain(unused)
}

#[cfg(test)]
mod tests;
