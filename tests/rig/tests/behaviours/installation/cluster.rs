//! A cluster of two kubelet nodes that have the image and nothing else of the product.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use knmstate_operator::KINDS;
use rig::{ApiServer, KubeNode, Lab, kube_node::KubeNodeBuilder, machine::rig_file, wait};
use serde_json::{Value, json};

pub const LIMIT: Duration = Duration::from_mins(4);
pub const NAMESPACE: &str = "nmstate";

pub struct InstallationCluster {
    pub nodes: Vec<KubeNode>,
    pub api: ApiServer,
    _lab: Lab,
}

impl InstallationCluster {
    /// Its nodes have these images.
    pub async fn new(images: &[PathBuf]) -> Result<Self> {
        let lab = Lab::new().await?;
        lab.dns().on().await?;
        let api = lab.api_server().with_controllers().start().await?;
        let start = |name| images.iter().fold(lab.kube_node(name, &api), KubeNodeBuilder::image).start();
        let nodes = try_join_all(["node1", "node2"].map(start)).await?;
        Ok(Self { nodes, api, _lab: lab })
    }

    /// A file of the project, by its path in the tree.
    pub fn file(path: &str) -> String {
        rig_file("../..").join(path).display().to_string()
    }

    pub async fn create_nmstate(&self) -> Result<()> {
        let nmstate =
            json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"}});
        self.api.kubectl_with(&nmstate.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    pub async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let reached = wait::until(LIMIT, what, check).await;
        if reached.is_err() {
            self.print_diagnostics().await?;
        }
        reached
    }

    /// Prints what helps to find the cause of a failed wait.
    async fn print_diagnostics(&self) -> Result<()> {
        for command in [
            &["get", "pods,nmstates,nncp,nnce,nns", "--all-namespaces", "--output=wide"][..],
            &["describe", "pods", "--namespace", NAMESPACE],
            &["logs", "--namespace", NAMESPACE, "--selector=app", "--tail=15", "--prefix"],
        ] {
            let output = self.api.kubectl(command.iter().copied()).await?;
            println!("$ kubectl {}\n{}{}", command.join(" "), output.stdout(), output.stderr());
        }
        Ok(())
    }

    /// Waits for the NMState to be available, as users do.
    pub async fn until_deployed(&self) -> Result<()> {
        self.until("the NMState to be available", async || {
            let nmstate = self.api.kubectl(["get", "nmstate", "nmstate", "-o", "json"]).await?.json()?;
            let available = condition(&nmstate, "Available");
            ensure!(available["status"] == "True", "{:#}", nmstate["status"]);
            Ok(())
        })
        .await
    }

    pub async fn until_all_report(&self) -> Result<()> {
        self.until("both nodes to report", async || {
            let names =
                self.api.kubectl(["get", "nns", "--output=jsonpath={.items[*].metadata.name}"]).await?;
            ensure!(names.stdout() == "node1 node2", "{}{}", names.stdout(), names.stderr());
            Ok(())
        })
        .await
    }

    /// Applies an example and waits until all nodes have it.
    pub async fn enact(&self, example: &str) -> Result<()> {
        self.api
            .kubectl(["apply", "-f", &Self::file(&format!("examples/cluster/{example}.yaml"))])
            .await?
            .success()?;
        self.until_enacted(example).await
    }

    pub async fn until_enacted(&self, policy: &str) -> Result<()> {
        self.until(&format!("{policy} to be available"), async || {
            let policy = self.api.kubectl(["get", "nncp", policy, "-o", "json"]).await?.json()?;
            let available = condition(&policy, "Available");
            ensure!(available["message"] == "2/2 nodes successfully configured", "{:#}", policy["status"]);
            Ok(())
        })
        .await
    }

    /// The links, addresses and routes of all nodes that a change of ours could have touched.
    pub async fn networks(&self) -> Result<Vec<Value>> {
        let mut networks = Vec::new();
        for node in &self.nodes {
            for command in [&["ip", "-j", "address"][..], &["ip", "-j", "route"]] {
                let mut found = node.exec(command.iter().copied()).await?.json()?;
                let all = found.as_array_mut().context("a list")?;
                // The interfaces and routes of pods change with the pods.
                all.retain(|entry| {
                    let name = entry["ifname"].as_str().or(entry["dev"].as_str()).unwrap_or_default();
                    !name.starts_with("veth") && !name.starts_with("cni")
                });
                for entry in all {
                    for address in entry["addr_info"].as_array_mut().into_iter().flatten() {
                        address
                            .as_object_mut()
                            .context("an address")?
                            .retain(|key, _| !key.ends_with("_life_time"));
                    }
                }
                networks.push(found);
            }
        }
        Ok(networks)
    }

    /// All objects with `nmstate` in their name or labels, without CRDs.
    pub async fn leftovers(&self) -> Result<BTreeSet<String>> {
        let mut kinds: Vec<String> = KINDS
            .iter()
            .filter(|kind| kind.built_in && kind.kind != "CustomResourceDefinition")
            .map(|kind| format!("{}.{}", kind.plural, kind.group()))
            .collect();
        kinds.extend(["pods", "secrets", "leases", "jobs"].map(str::to_owned));
        let list =
            self.api.kubectl(["get", &kinds.join(","), "--all-namespaces", "-o", "json"]).await?.json()?;
        let ours = list["items"].as_array().context("a list")?.iter().filter_map(|item| {
            let name = item["metadata"]["name"].as_str()?;
            let labels = item["metadata"]["labels"].to_string();
            let is_ours = name.contains("nmstate") || labels.contains("nmstate");
            is_ours.then(|| format!("{} {name}", item["kind"].as_str().unwrap_or_default()))
        });
        Ok(ours.collect())
    }

    pub async fn until_nothing_is_left(&self) -> Result<()> {
        self.until("nothing to be left", async || {
            let left = self.leftovers().await?;
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await?;
        let definitions = self.api.kubectl(["get", "crds", "--output=name"]).await?.success()?;
        assert_eq!(
            definitions.lines().filter(|name| name.ends_with(".nmstate.io")).count(),
            4,
            "{definitions}"
        );
        Ok(())
    }
}

pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}
