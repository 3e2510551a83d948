//! A Kubernetes API: etcd and kube-apiserver in the lab's network, on request with the controller-manager and the
//! scheduler.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::sys::signal::Signal;

use crate::{
    api_server_flags, kubeconfig,
    lab::Lab,
    machine::rig_file,
    parts,
    pki::{Authority, Identity},
    port_forward::PortForward,
    process::{Invocation, LAB_VARIABLE, Output, Process, write_private},
    wait,
};

/// The address of the API server for nodes.
pub(crate) const ADDRESS: &str = "10.99.0.1:6443";
const BACK_ADDRESS: &str = "10.98.0.1:6443";
/// Each kubelet node gets a /24 of this range for its pods.
pub(crate) const POD_RANGE: &str = "10.244.0.0/16";
const READY_LIMIT: Duration = Duration::from_mins(1);

impl Lab {
    /// An API server in this lab, not started yet. A lab can have one.
    pub fn api_server(&self) -> ApiServerBuilder {
        ApiServerBuilder { lab: self.clone(), controllers: false }
    }
}

/// The settings of an API server that is not started yet.
#[derive(Debug)]
pub struct ApiServerBuilder {
    lab: Lab,
    controllers: bool,
}

impl ApiServerBuilder {
    /// Also runs the controller-manager and the scheduler, for garbage collection, DaemonSets and the life cycle of
    /// nodes.
    #[must_use]
    pub fn with_controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// Returns when the API server reports that it is ready. Fails when `scripts/setup` has not run, a process ends, or
    /// it is not ready in time.
    pub async fn start(self) -> Result<ApiServer> {
        let directory = self.lab.directory().join("kubernetes");
        std::fs::create_dir(&directory).context("a lab can have one API server")?;
        let authority = Authority::new("knmstate-rig-ca")?;
        api_server_flags::write_keys(&authority, &directory)?;
        let target: SocketAddr = ADDRESS.parse()?;
        let forward = PortForward::from_loopback(self.lab.network().sockets()?, target).await?;
        let admin = authority.client("admin", &["system:masters"])?;
        let outside = format!("https://{}", forward.local);
        let kubeconfig = directory.join("admin.kubeconfig");
        write_private(&kubeconfig, &kubeconfig::with_certificate(&outside, &authority.identity(), &admin))?;
        let client = client_from(&std::fs::read_to_string(&kubeconfig)?).await?;
        let mut server = ApiServer {
            etcd: None,
            api: None,
            controllers: Vec::new(),
            forward,
            client,
            kubeconfig,
            authority,
            directory,
            lab: self.lab,
        };
        server.start_processes().await?;
        if self.controllers {
            server.start_controllers().await?;
        }
        Ok(server)
    }
}

/// A running API server. Dropping it ends its processes, and its data are removed with the lab.
pub struct ApiServer {
    // Fields drop in this order: clients before the API server, the API server before etcd.
    controllers: Vec<Process>,
    api: Option<Process>,
    etcd: Option<Process>,
    forward: PortForward,
    client: Client,
    kubeconfig: PathBuf,
    authority: Authority,
    directory: PathBuf,
    lab: Lab,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "API server of {}", self.lab.id())
    }
}

/// The object that a ServiceAccount token is bound to. The token has a claim with the node of that object, and is
/// invalid once the object is deleted.
#[derive(Clone, Copy, Debug)]
pub enum BoundTo<'a> {
    Nothing,
    Node(&'a str),
    /// A pod in the namespace of the ServiceAccount.
    Pod(&'a str),
}

impl ApiServer {
    /// A client on this machine with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig file with all rights, for programs on this machine.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig for use in the lab's network, as this user with these groups.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String> {
        let identity = self.authority.client(user, groups)?;
        let inside = format!("https://{ADDRESS}");
        Ok(kubeconfig::with_certificate(&inside, &self.authority.identity(), &identity))
    }

    /// A kubeconfig for use in the lab's network, with a token.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        kubeconfig::with_token(&format!("https://{ADDRESS}"), &self.authority.identity(), token)
    }

    /// Makes the API server reachable from the back segment as well, until the returned forwarder is dropped: for nodes
    /// that have no interface on the front segment. The kubeconfig has the address on the back segment.
    pub async fn forward_from_back_segment(&self, token: &str) -> Result<(PortForward, String)> {
        let address: SocketAddr = BACK_ADDRESS.parse()?;
        let network = self.lab.network();
        let forward =
            PortForward::from_listener(network.listen(address).await?, network.sockets()?, ADDRESS.parse()?)?;
        let kubeconfig =
            kubeconfig::with_token(&format!("https://{address}"), &self.authority.identity(), token);
        Ok((forward, kubeconfig))
    }

    /// A client on this machine with a token instead of the admin's certificate.
    pub async fn client_with_token(&self, token: &str) -> Result<Client> {
        let outside = format!("https://{}", self.forward.local);
        client_from(&kubeconfig::with_token(&outside, &self.authority.identity(), token)).await
    }

    /// The configuration of that client, for code that creates a client itself.
    pub async fn config_with_token(&self, token: &str) -> Result<Config> {
        let outside = format!("https://{}", self.forward.local);
        config_from(&kubeconfig::with_token(&outside, &self.authority.identity(), token)).await
    }

    /// The certificate authority of the cluster, in PEM.
    pub fn authority(&self) -> Identity {
        self.authority.identity()
    }

    /// Runs kubectl with all rights.
    pub async fn kubectl<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        self.kubectl_with("", args).await
    }

    /// Runs kubectl with all rights and a document on its standard input.
    pub async fn kubectl_with<S: Into<String>>(
        &self,
        stdin: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let kubectl = parts::kubernetes("kubectl").await?;
        Invocation::new([kubectl])
            .args(args)
            // kubectl caches what it discovers below HOME, and labs have different API servers.
            .env("HOME", self.directory.display().to_string())
            .env("KUBECONFIG", self.kubeconfig.display().to_string())
            .stdin(stdin)
            .run(Duration::from_mins(1))
            .await
    }

    /// Installs `deploy/crds` as a user would, and waits until kubectl knows the new kinds. Returns what kubectl
    /// printed.
    pub async fn install_crds(&self) -> Result<String> {
        let directory = rig_file("../../deploy/crds").display().to_string();
        let printed = self.kubectl(["apply", "-f", &directory]).await?.success()?;
        wait::until(READY_LIMIT, "the API server to serve the new kinds", async || {
            for kind in ["nmstates", "nncp", "nnce", "nns"] {
                self.kubectl(["explain", kind]).await?.success()?;
            }
            Ok(())
        })
        .await?;
        Ok(printed)
    }

    /// A token of an existing ServiceAccount, valid for an hour.
    pub async fn token(&self, namespace: &str, account: &str, bound: BoundTo<'_>) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: self.bound_reference(namespace, bound).await?,
                expiration_seconds: Some(3600),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(answer.status.context("the answer to the token request has no status")?.token)
    }

    async fn bound_reference(
        &self,
        namespace: &str,
        bound: BoundTo<'_>,
    ) -> Result<Option<BoundObjectReference>> {
        let (kind, name, uid) = match bound {
            BoundTo::Nothing => return Ok(None),
            BoundTo::Node(name) => ("Node", name, Api::<Node>::all(self.client()).get(name).await?.uid()),
            BoundTo::Pod(name) => {
                ("Pod", name, Api::<Pod>::namespaced(self.client(), namespace).get(name).await?.uid())
            }
        };
        Ok(Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            uid,
        }))
    }

    /// Stops the API server with SIGSTOP: connections stay open, and requests get no answer.
    pub fn freeze(&self) -> Result<()> {
        self.api_process()?.signal(Signal::SIGSTOP)
    }

    /// Continues what [`freeze`](Self::freeze) has stopped.
    pub fn resume(&self) -> Result<()> {
        self.api_process()?.signal(Signal::SIGCONT)
    }

    /// Stops etcd with SIGSTOP. The API server still answers the requests for which it does not need etcd.
    pub fn freeze_etcd(&self) -> Result<()> {
        self.etcd_process()?.signal(Signal::SIGSTOP)
    }

    /// Continues what [`freeze_etcd`](Self::freeze_etcd) has stopped.
    pub fn resume_etcd(&self) -> Result<()> {
        self.etcd_process()?.signal(Signal::SIGCONT)
    }

    /// Ends the API server and etcd, and keeps the data.
    pub async fn stop(&mut self) -> Result<()> {
        for process in [self.api.take(), self.etcd.take()].into_iter().flatten() {
            process.terminate(Duration::from_secs(30)).await?;
        }
        Ok(())
    }

    /// Kills the API server and etcd, and keeps the data. Unlike [`stop`](Self::stop) it does not end watches before.
    pub fn crash(&mut self) {
        self.api = None;
        self.etcd = None;
    }

    /// Starts the API server and etcd again with the same data, after [`stop`](Self::stop) or [`crash`](Self::crash).
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.api.is_none(), "the API server is running");
        self.start_processes().await
    }

    fn api_process(&self) -> Result<&Process> {
        self.api.as_ref().context("the API server has been stopped")
    }

    fn etcd_process(&self) -> Result<&Process> {
        self.etcd.as_ref().context("etcd has been stopped")
    }

    async fn start_processes(&mut self) -> Result<()> {
        self.etcd = Some(self.launch("etcd", &api_server_flags::etcd(&self.directory)).await?);
        self.api = Some(self.launch("kube-apiserver", &api_server_flags::api_server(&self.directory)).await?);
        let client = self.client.clone();
        let processes = self.etcd.iter_mut().chain(self.api.iter_mut());
        let mut processes: Vec<&mut Process> = processes.collect();
        wait::until(READY_LIMIT, "the API server to be ready", async || {
            for process in &mut processes {
                process.check_running()?;
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await?)
        })
        .await?;
        Ok(())
    }

    async fn start_controllers(&mut self) -> Result<()> {
        for (name, user) in [
            ("kube-controller-manager", "system:kube-controller-manager"),
            ("kube-scheduler", "system:kube-scheduler"),
        ] {
            let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
            write_private(&kubeconfig, &self.kubeconfig_for(user, &[])?)?;
            let mut flags = Vec::from(
                ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                    .map(|flag| format!("--{flag}={}", kubeconfig.display())),
            );
            flags.extend(
                ["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"].map(String::from),
            );
            flags.push(format!("--cert-dir={}", self.directory.display()));
            if name == "kube-controller-manager" {
                flags.extend(api_server_flags::controller_manager(&self.directory));
            }
            let process = self.launch(name, &flags).await?;
            self.controllers.push(process);
        }
        Ok(())
    }

    async fn launch(&self, name: &str, flags: &[String]) -> Result<Process> {
        let invocation = Invocation::new([parts::kubernetes(name).await?])
            .args(flags.iter().cloned())
            .env(LAB_VARIABLE, self.lab.id());
        self.lab.network().enter(invocation).start(name, &self.directory.join(format!("{name}.log")))
    }
}

async fn client_from(kubeconfig: &str) -> Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

async fn config_from(kubeconfig: &str) -> Result<Config> {
    let config = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    // The machine's proxy settings are not for a server on loopback.
    config.proxy_url = None;
    Ok(config)
}
