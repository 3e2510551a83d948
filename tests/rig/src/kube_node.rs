//! A node of a cluster: kubelet, containerd, kube-proxy and NetworkManager in namespaces of their own.
//!
//! Pods get addresses of the node's pod network and are connected to a bridge. The API server and the other nodes reach
//! them, and Services work. The node's root file system is a copy-on-write view of the machine's: what a pod writes to
//! its host is removed with the node.

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

/// Limit for one step of the start. It takes two seconds on an idle machine, and much longer when many tests start
/// nodes at the same time.
const STEP_LIMIT: Duration = Duration::from_mins(1);
const READY_LIMIT: Duration = Duration::from_mins(2);
/// NICs on the back segment: `eth1` and `eth2`.
const BACK_NICS: usize = 2;

impl Lab {
    /// A kubelet node, not started yet. The API server has to run with controllers.
    pub fn kube_node<'a>(&self, name: &str, api: &'a ApiServer) -> KubeNodeBuilder<'a> {
        KubeNodeBuilder { lab: self.clone(), api, name: name.to_owned(), images: Vec::new() }
    }
}

/// The reason why no kubelet node can run on this machine, or none if one can. It is the only reason for which a test
/// with a kubelet node may be skipped.
pub fn obstacle() -> Result<Option<&'static str>> {
    kube_cgroup::obstacle()
}

/// The settings of a kubelet node that is not started yet.
#[derive(Debug)]
pub struct KubeNodeBuilder<'a> {
    lab: Lab,
    api: &'a ApiServer,
    name: String,
    images: Vec<PathBuf>,
}

impl KubeNodeBuilder<'_> {
    /// Imports an image for pods, an OCI layout in a tar file. [`images::POD`] is always there.
    #[must_use]
    pub fn image(mut self, tar: impl Into<PathBuf>) -> Self {
        self.images.push(tar.into());
        self
    }

    /// Returns when the node is Ready. Fails when a part of the rig is missing, a service ends, or the node is not
    /// ready in time.
    pub async fn start(self) -> Result<KubeNode> {
        let name = self.name.clone();
        self.start_all().await.with_context(|| format!("start the kubelet node {name}"))
    }

    async fn start_all(self) -> Result<KubeNode> {
        let number = self.lab.next_node()?;
        let directory = self.lab.directory().join(&self.name);
        std::fs::create_dir(&directory).with_context(|| format!("create the directory of {}", self.name))?;
        let configuration = KubeConfiguration::write(&directory, &self.name, number, self.api)?;
        let client = self.api.client();
        join_cluster(&client, &self.name, &configuration).await?;

        let cgroup = NodeCgroup::create(&format!("{}-{}", self.lab.id(), self.name))?;
        let machine = self.start_machine(&directory).await?;
        let mut nics = vec![machine.plug_in(&self.lab, number, 0, Segment::Front).await?];
        for index in 1..=BACK_NICS {
            nics.push(machine.plug_in(&self.lab, number, index, Segment::Back).await?);
        }
        std::fs::write(directory.join("run/nics-are-in"), "")?;
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

    async fn start_machine(&self, directory: &Path) -> Result<Machine> {
        let cgroup = format!("{}-{}", self.lab.id(), self.name);
        // Links are resolved here, because they may have other targets inside the node.
        let kubelet = PathBuf::from(parts::kubernetes("kubelet").await?).canonicalize()?;
        let binaries = kubelet.parent().context("the path of kubelet has no directory")?;
        let init =
            Invocation::new([script("enter-cgroup"), cgroup, "unshare".to_owned(), "--cgroup".to_owned()])
                .args([script("init"), self.name.clone()])
                .args(
                    [directory, binaries, &rig_file("").canonicalize()?]
                        .map(|path| path.display().to_string()),
                );
        let mut machine =
            Machine::start(&self.lab, &self.name, init, &["--cgroup"], &directory.join("init.log")).await?;
        wait::until(STEP_LIMIT, &format!("{} to wait for its NICs", self.name), async || {
            machine.check_running()?;
            Ok(std::fs::metadata(directory.join("run/waiting-for-nics"))?)
        })
        .await?;
        Ok(machine)
    }
}

/// A running node. Dropping it ends and removes everything except its Node object.
#[derive(Debug)]
pub struct KubeNode {
    // Fields drop in this order: the services, then all other processes in the namespaces, then the empty cgroup.
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

    /// The network of its pods.
    pub fn pod_cidr(&self) -> &str {
        &self.configuration.pod_cidr
    }

    /// The pid of the node's first process in the machine's pid namespace.
    pub fn pid(&self) -> u32 {
        self.machine.pid()
    }

    /// The lab's end of `eth<index>`: 0 on the front segment, 1 and 2 on the back.
    pub fn nic(&self, index: usize) -> &Nic {
        &self.nics[index]
    }

    /// Runs a command on the node, outside of pods.
    pub async fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.exec_with(Invocation::new(argv), EXEC_LIMIT).await
    }

    /// Runs a command on the node, outside of pods, and kills it when `limit` has passed.
    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.enter(invocation).run(limit).await
    }

    /// Changes a command so that it runs on the node when the caller starts it.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        self.machine.enter(invocation.wrapped_in(vec![script("enter-cgroup"), ".".to_owned()]))
    }

    /// Ends the kubelet. Its pods keep running, and the cluster marks the node after its grace period.
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

    /// A node can be Ready before its Services and its other NICs work.
    async fn wait_for_network(&mut self) -> Result<()> {
        let mut kube_proxy = self.kube_proxy.take().context("kube-proxy has not been started")?;
        let working = wait::until(STEP_LIMIT, "kube-proxy and NetworkManager", async || {
            kube_proxy.check_running()?;
            self.check_health("kube-proxy", 10256).await?;
            let startup = self.exec(["nmcli", "-t", "-f", "STARTUP", "general"]).await?.success()?;
            ensure!(startup.trim() == "started", "NetworkManager is in state '{}'", startup.trim());
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
        let directory = self.configuration.path("images");
        std::fs::create_dir(&directory)?;
        images::write_pod(&directory.join("0.tar"))?;
        for (index, tar) in tars.iter().enumerate() {
            let inside = directory.join(format!("{}.tar", index + 1));
            std::fs::copy(tar, inside).with_context(|| format!("copy the image {}", tar.display()))?;
        }
        for index in 0..=tars.len() {
            let tar = directory.join(format!("{index}.tar")).display().to_string();
            let import = self.exec(["ctr", "--namespace=k8s.io", "images", "import", &tar]).await?;
            import.success().with_context(|| format!("import the image {tar}"))?;
        }
        std::fs::remove_dir_all(&directory)?;
        // containerd's CRI plugin processes imports later, and then labels the images as managed.
        wait::until(STEP_LIMIT, "containerd to make the images available to pods", async || {
            let list = self.exec(["ctr", "--namespace=k8s.io", "images", "list"]).await?.success()?;
            let managed =
                list.lines().filter(|line| !line.starts_with("sha256:") && line.contains("=managed"));
            ensure!(managed.count() > tars.len(), "{list}");
            Ok(())
        })
        .await
    }

    async fn check_ready(&self) -> Result<()> {
        let status = self.nodes.get(&self.name).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let ready = ready.context("the kubelet has not reported yet")?;
        ensure!(ready.status == "True", "not ready: {}", ready.message.unwrap_or_default());
        // An earlier kubelet may have set that condition.
        self.check_health("kubelet", 10248).await
    }

    async fn check_health(&self, service: &str, port: u16) -> Result<()> {
        let url = format!("http://127.0.0.1:{port}/healthz");
        let answer =
            self.exec(["curl", "--silent", "--show-error", "--fail", "--max-time", "2", &url]).await?;
        answer.success().with_context(|| format!("{service} does not report that it is healthy"))?;
        Ok(())
    }
}

/// Creates the Node object, which sets the pod network before the kubelet starts, and the endpoints of the API server.
async fn join_cluster(client: &Client, name: &str, configuration: &KubeConfiguration) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"podCIDR": configuration.pod_cidr, "podCIDRs": [configuration.pod_cidr]},
    }))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    // The API server runs without its endpoint reconciler, and these endpoints never change.
    let (address, port) = api_server::ADDRESS.split_once(':').context("the address has no port")?;
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

/// Routes the node's pod network in the lab's namespace, for the API server there and for the other nodes, whose
/// gateway it is.
async fn route_pods(lab: &Lab, configuration: &KubeConfiguration) -> Result<()> {
    let KubeConfiguration { address, pod_cidr, .. } = configuration;
    lab.network().ip(&format!("route replace {pod_cidr} via {address}\n")).await?;
    lab.network().run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]).await?.success()?;
    Ok(())
}

fn script(name: &str) -> String {
    rig_file("kube").join(name).display().to_string()
}
