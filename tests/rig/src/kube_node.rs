//! A node of a cluster: kubelet, containerd, kube-proxy and NetworkManager, all real, in namespaces of its own.
//!
//! Pods get addresses of the node's pod network from a bridge; the API server and the other nodes reach them there,
//! and Services work. The node's root is a copy-on-write view of the machine's: whatever a pod writes to its host is
//! gone with the node.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    api_server::{self, ApiServer},
    images,
    kube_cgroup::{self, NodeCgroup},
    kube_config::KubeConfiguration,
    lab::{Lab, Segment},
    machine::{EXEC_LIMIT, Machine, Nic, rig_file},
    parts,
    process::{Invocation, LAB_VARIABLE, Output, Process},
    wait,
};

/// What takes two seconds on an idle machine takes much longer when every test starts its nodes at once.
const STEP_LIMIT: Duration = Duration::from_mins(1);
const READY_LIMIT: Duration = Duration::from_mins(2);
/// Secondary cards: `eth1` and `eth2`.
const BACK_NICS: usize = 2;

impl Lab {
    /// A kubelet node of the lab's cluster, whose API server must run with controllers.
    pub fn kube_node<'a>(&self, name: &str, api: &'a ApiServer) -> KubeNodeBuilder<'a> {
        KubeNodeBuilder { lab: self.clone(), api, name: name.to_owned(), images: Vec::new() }
    }
}

/// Why no kubelet node can run on this machine, if that is so: a test skips for this reason, and no other.
pub fn obstacle() -> Result<Option<&'static str>> {
    kube_cgroup::obstacle()
}

#[derive(Debug)]
pub struct KubeNodeBuilder<'a> {
    lab: Lab,
    api: &'a ApiServer,
    name: String,
    images: Vec<PathBuf>,
}

impl KubeNodeBuilder<'_> {
    /// An image that pods can use, besides [`images::POD`]: an OCI layout in a tar file.
    #[must_use]
    pub fn image(mut self, tar: impl Into<PathBuf>) -> Self {
        self.images.push(tar.into());
        self
    }

    /// Returns when the node is Ready.
    pub async fn start(self) -> Result<KubeNode> {
        let name = self.name.clone();
        self.start_all().await.with_context(|| format!("start the kubelet node {name}"))
    }

    async fn start_all(self) -> Result<KubeNode> {
        let number = self.lab.next_node()?;
        let folder = self.lab.folder().join(&self.name);
        std::fs::create_dir(&folder).with_context(|| format!("a node named {}", self.name))?;
        let configuration = KubeConfiguration::write(&folder, &self.name, number, self.api)?;
        let client = self.api.client();
        join_cluster(&client, &self.name, &configuration).await?;

        let cgroup = NodeCgroup::create(&format!("{}-{}", self.lab.id(), self.name))?;
        let machine = self.start_machine(&folder).await?;
        let mut nics = vec![machine.plug_in(&self.lab, number, 0, Segment::Front).await?];
        for index in 1..=BACK_NICS {
            nics.push(machine.plug_in(&self.lab, number, index, Segment::Back).await?);
        }
        std::fs::write(folder.join("run/nics-are-in"), "")?;
        route_pods(&self.lab, &configuration).await?;

        let mut node = KubeNode {
            kubelet: None,
            kube_proxy: None,
            containerd: None,
            machine,
            _cgroup: cgroup,
            nics,
            configuration,
            nodes: Api::all(client),
            name: self.name,
            lab: self.lab,
        };
        node.start_containerd().await?;
        node.import_images(&self.images).await?;
        node.start_kube_proxy().await?;
        node.start_kubelet().await?;
        node.wait_for_network().await?;
        Ok(node)
    }

    async fn start_machine(&self, folder: &Path) -> Result<Machine> {
        let cgroup = format!("{}-{}", self.lab.id(), self.name);
        // Resolved here, because inside the node a link may lead elsewhere.
        let kubelet = PathBuf::from(parts::kubernetes("kubelet").await?).canonicalize()?;
        let binaries = kubelet.parent().context("kubelet lies in no folder")?;
        let init =
            Invocation::new([script("enter-cgroup"), cgroup, "unshare".to_owned(), "--cgroup".to_owned()])
                .args([script("init"), self.name.clone()])
                .args(
                    [folder, binaries, &rig_file("").canonicalize()?].map(|path| path.display().to_string()),
                );
        let mut machine =
            Machine::start(&self.lab, &self.name, init, &["--cgroup"], &folder.join("init.log")).await?;
        wait::until(STEP_LIMIT, &format!("{} to take its network cards", self.name), async || {
            machine.check_running()?;
            Ok(std::fs::metadata(folder.join("run/waiting-for-nics"))?)
        })
        .await?;
        Ok(machine)
    }
}

/// A running node; gone when dropped, but for its object in the API.
#[derive(Debug)]
pub struct KubeNode {
    // Dropped in this order: the services, then whatever else runs in the namespaces, then the empty cgroup.
    kubelet: Option<Process>,
    kube_proxy: Option<Process>,
    containerd: Option<Process>,
    machine: Machine,
    _cgroup: NodeCgroup,
    nics: Vec<Nic>,
    configuration: KubeConfiguration,
    nodes: Api<Node>,
    name: String,
    lab: Lab,
}

impl KubeNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the front segment.
    pub fn address(&self) -> &str {
        &self.configuration.address
    }

    /// What the addresses of its pods are taken from.
    pub fn pod_cidr(&self) -> &str {
        &self.configuration.pod_cidr
    }

    /// The first process of the node, as the machine outside sees it.
    pub fn pid(&self) -> u32 {
        self.machine.pid()
    }

    /// The cable of `eth<index>`: 0 on the front segment, 1 and 2 on the back.
    pub fn nic(&self, index: usize) -> &Nic {
        &self.nics[index]
    }

    /// Runs a command on the node, outside of any pod.
    pub async fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.exec_with(Invocation::new(argv), EXEC_LIMIT).await
    }

    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.enter(invocation).run(limit).await
    }

    /// The same command, to be started on the node by the caller.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        self.machine.enter(invocation.after(vec![script("enter-cgroup"), ".".to_owned()]))
    }

    /// Ends the kubelet; its pods keep running, and the cluster notices after its grace period.
    pub async fn stop_kubelet(&mut self) -> Result<()> {
        self.kubelet.take().context("the kubelet has been stopped")?.terminate(STEP_LIMIT).await
    }

    /// Starts the kubelet, and returns when it runs and the node is Ready.
    pub async fn start_kubelet(&mut self) -> Result<()> {
        ensure!(self.kubelet.is_none(), "the kubelet is running");
        let files = &self.configuration;
        let flags = [
            files.flag("config", "kubelet.yaml"),
            files.flag("kubeconfig", "kubelet.kubeconfig"),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", files.address),
        ];
        let mut kubelet = self.start_service("kubelet", flags).await?;
        let ready = wait::until(READY_LIMIT, &format!("{} to be Ready", self.name), async || {
            kubelet.check_running()?;
            self.check_ready().await
        })
        .await;
        ready.with_context(|| format!("the end of the kubelet's log:\n{}", kubelet.log_tail(20)))?;
        self.kubelet = Some(kubelet);
        Ok(())
    }

    async fn start_containerd(&mut self) -> Result<()> {
        let flags = [self.configuration.flag("config", "containerd.toml")];
        let invocation = Invocation::new(["containerd"]).args(flags);
        let mut containerd = self.launch("containerd", invocation)?;
        wait::until(STEP_LIMIT, "containerd to answer", async || {
            containerd.check_running()?;
            self.exec(["ctr", "version"]).await?.success()
        })
        .await?;
        self.containerd = Some(containerd);
        Ok(())
    }

    async fn start_kube_proxy(&mut self) -> Result<()> {
        let flags = [
            self.configuration.flag("config", "kube-proxy.yaml"),
            format!("--hostname-override={}", self.name),
        ];
        self.kube_proxy = Some(self.start_service("kube-proxy", flags).await?);
        Ok(())
    }

    /// A Ready node says nothing about its Services and its other network cards.
    async fn wait_for_network(&mut self) -> Result<()> {
        let mut kube_proxy = self.kube_proxy.take().context("kube-proxy has not been started")?;
        let working = wait::until(STEP_LIMIT, "kube-proxy and NetworkManager", async || {
            kube_proxy.check_running()?;
            self.check_health("kube-proxy", 10256).await?;
            let startup = self.exec(["nmcli", "-t", "-f", "STARTUP", "general"]).await?.success()?;
            ensure!(startup.trim() == "started", "NetworkManager says it is '{}'", startup.trim());
            Ok(())
        })
        .await;
        working.with_context(|| format!("the end of kube-proxy's log:\n{}", kube_proxy.log_tail(20)))?;
        self.kube_proxy = Some(kube_proxy);
        Ok(())
    }

    async fn start_service(&self, name: &str, flags: impl IntoIterator<Item = String>) -> Result<Process> {
        let program = PathBuf::from(parts::kubernetes(name).await?).canonicalize()?;
        self.launch(name, Invocation::new([program.display().to_string()]).args(flags))
    }

    fn launch(&self, name: &str, invocation: Invocation) -> Result<Process> {
        let log = self.configuration.path(&format!("{name}.log"));
        self.enter(invocation).env(LAB_VARIABLE, self.lab.id()).start(name, &log)
    }

    async fn import_images(&self, tars: &[PathBuf]) -> Result<()> {
        let folder = self.configuration.path("images");
        std::fs::create_dir(&folder)?;
        images::write_pod(&folder.join("0.tar"))?;
        for (index, tar) in tars.iter().enumerate() {
            let inside = folder.join(format!("{}.tar", index + 1));
            std::fs::copy(tar, inside).with_context(|| format!("copy the image {}", tar.display()))?;
        }
        for index in 0..=tars.len() {
            let tar = folder.join(format!("{index}.tar")).display().to_string();
            let import = self.exec(["ctr", "--namespace=k8s.io", "images", "import", &tar]).await?;
            import.success().with_context(|| format!("import the image {tar}"))?;
        }
        std::fs::remove_dir_all(&folder)?;
        // containerd's Kubernetes side learns of an import by an event, and marks what it has taken in.
        wait::until(STEP_LIMIT, "containerd to take in the images", async || {
            let list = self.exec(["ctr", "--namespace=k8s.io", "images", "list"]).await?.success()?;
            let taken_in =
                list.lines().filter(|line| !line.starts_with("sha256:") && line.contains("=managed"));
            ensure!(taken_in.count() > tars.len(), "{list}");
            Ok(())
        })
        .await
    }

    async fn check_ready(&self) -> Result<()> {
        let status = self.nodes.get(&self.name).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let ready = ready.context("the kubelet has not reported yet")?;
        ensure!(ready.status == "True", "not ready: {}", ready.message.unwrap_or_default());
        // The report may be that of an earlier kubelet.
        self.check_health("kubelet", 10248).await
    }

    async fn check_health(&self, service: &str, port: u16) -> Result<()> {
        let url = format!("http://127.0.0.1:{port}/healthz");
        let answer =
            self.exec(["curl", "--silent", "--show-error", "--fail", "--max-time", "2", &url]).await?;
        answer.success().with_context(|| format!("{service} does not say that it is healthy"))?;
        Ok(())
    }
}

/// Makes the node's object, so that its pod network is known before it starts, and lets pods find the API server.
async fn join_cluster(client: &Client, name: &str, configuration: &KubeConfiguration) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"podCIDR": configuration.pod_cidr, "podCIDRs": [configuration.pod_cidr]},
    }))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    // The API server does not keep the endpoints of its own Service up to date, and they never change.
    let (address, port) = api_server::ADDRESS.split_once(':').context("an address with a port")?;
    let endpoints = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "https", "port": port.parse::<u16>()?, "protocol": "TCP"}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let parameters = PatchParams::apply("rig").force();
    slices.patch("kubernetes", &parameters, &Patch::Apply(&endpoints)).await?;
    Ok(())
}

/// The lab's namespace, where the API server lives, reaches pods through their node, and so do the other nodes, for
/// which it is the gateway.
async fn route_pods(lab: &Lab, configuration: &KubeConfiguration) -> Result<()> {
    let KubeConfiguration { address, pod_cidr, .. } = configuration;
    lab.network().ip(&format!("route replace {pod_cidr} via {address}\n")).await?;
    lab.network().run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]).await?.success()?;
    Ok(())
}

fn script(name: &str) -> String {
    rig_file("kube").join(name).display().to_string()
}
