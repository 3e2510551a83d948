//! A real Kubernetes API: etcd and kube-apiserver in the lab's network, with the controller-manager and the scheduler
//! when asked for.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

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
    forward::Forward,
    kubeconfig,
    lab::Lab,
    machine::rig_file,
    parts,
    pki::{self, Authority, Identity},
    process::{Invocation, LAB_VARIABLE, Output, Process, write_private},
    wait,
};

/// Where nodes find the API server.
pub const ADDRESS: &str = "10.99.0.1:6443";
const BACK_ADDRESS: &str = "10.98.0.1:6443";
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// Pod networks are taken from this range.
pub const POD_RANGE: &str = "10.244.0.0/16";
const READY_LIMIT: Duration = Duration::from_mins(1);

impl Lab {
    /// An API server of the lab's own.
    pub fn api_server(&self) -> ApiServerBuilder {
        ApiServerBuilder { lab: self.clone(), controllers: false }
    }
}

#[derive(Debug)]
pub struct ApiServerBuilder {
    lab: Lab,
    controllers: bool,
}

impl ApiServerBuilder {
    /// Also runs the controller-manager and the scheduler: garbage collection, DaemonSets, node life cycle.
    #[must_use]
    pub fn with_controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    pub async fn start(self) -> Result<ApiServer> {
        let folder = self.lab.folder().join("kubernetes");
        std::fs::create_dir(&folder).context("a lab has one API server")?;
        let authority = Authority::new("knmstate-rig-ca")?;
        write_keys(&authority, &folder)?;
        let target: SocketAddr = ADDRESS.parse()?;
        let forward = Forward::to(self.lab.network().sockets()?, target).await?;
        let admin = authority.client("admin", &["system:masters"])?;
        let outside = format!("https://{}", forward.local);
        let kubeconfig = folder.join("admin.kubeconfig");
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
            folder,
            lab: self.lab,
        };
        server.start_processes().await?;
        if self.controllers {
            server.start_controllers().await?;
        }
        Ok(server)
    }
}

/// A running API server; gone with all its data when dropped.
pub struct ApiServer {
    // Dropped in this order: clients before servers, servers before their store.
    controllers: Vec<Process>,
    api: Option<Process>,
    etcd: Option<Process>,
    forward: Forward,
    client: Client,
    kubeconfig: PathBuf,
    authority: Authority,
    folder: PathBuf,
    lab: Lab,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "API server of {}", self.lab.id())
    }
}

/// What a ServiceAccount token is tied to: it stops being valid when that is gone, and names its node.
#[derive(Clone, Copy, Debug)]
pub enum BoundTo<'a> {
    Nothing,
    Node(&'a str),
    /// A pod in the namespace of the ServiceAccount.
    Pod(&'a str),
}

impl ApiServer {
    /// A client with every right.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Every right, for programs on this machine.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// A kubeconfig for use inside the lab's network, as this user with these groups.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String> {
        let identity = self.authority.client(user, groups)?;
        let inside = format!("https://{ADDRESS}");
        Ok(kubeconfig::with_certificate(&inside, &self.authority.identity(), &identity))
    }

    /// A kubeconfig for use inside the lab's network, with a token.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        kubeconfig::with_token(&format!("https://{ADDRESS}"), &self.authority.identity(), token)
    }

    /// Lets the API server be reached from the back segment, too, for as long as the door lives: for nodes whose only way
    /// to it is one of their cards there. The kubeconfig goes through that door.
    pub async fn on_the_back_segment(&self, token: &str) -> Result<(Forward, String)> {
        let address: SocketAddr = BACK_ADDRESS.parse()?;
        let network = self.lab.network();
        let door = Forward::from(network.listen(address).await?, network.sockets()?, ADDRESS.parse()?)?;
        let kubeconfig =
            kubeconfig::with_token(&format!("https://{address}"), &self.authority.identity(), token);
        Ok((door, kubeconfig))
    }

    /// A client on this machine with a token instead of the admin's certificate.
    pub async fn client_with_token(&self, token: &str) -> Result<Client> {
        let outside = format!("https://{}", self.forward.local);
        client_from(&kubeconfig::with_token(&outside, &self.authority.identity(), token)).await
    }

    /// The same as a configuration, for what makes its own client.
    pub async fn config_with_token(&self, token: &str) -> Result<Config> {
        let outside = format!("https://{}", self.forward.local);
        config_from(&kubeconfig::with_token(&outside, &self.authority.identity(), token)).await
    }

    /// The certificate authority of the cluster, in PEM.
    pub fn authority(&self) -> Identity {
        self.authority.identity()
    }

    pub async fn kubectl<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        self.kubectl_with("", args).await
    }

    /// kubectl with a document on its standard input.
    pub async fn kubectl_with<S: Into<String>>(
        &self,
        stdin: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let kubectl = parts::kubernetes("kubectl").await?;
        Invocation::new([kubectl])
            .args(args)
            // kubectl keeps a discovery cache below HOME, which is neither ours nor shared between labs.
            .env("HOME", self.folder.display().to_string())
            .env("KUBECONFIG", self.kubeconfig.display().to_string())
            .stdin(stdin)
            .run(Duration::from_mins(1))
            .await
    }

    /// Installs `deploy/crds` as a user would, and returns what kubectl said once it knows the new kinds.
    pub async fn install_crds(&self) -> Result<String> {
        let folder = rig_file("../../deploy/crds").display().to_string();
        let said = self.kubectl(["apply", "-f", &folder]).await?.success()?;
        wait::until(READY_LIMIT, "the API to serve the new kinds", async || {
            for kind in ["nmstates", "nncp", "nnce", "nns"] {
                self.kubectl(["explain", kind]).await?.success()?;
            }
            Ok(())
        })
        .await?;
        Ok(said)
    }

    /// A token of an existing ServiceAccount.
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
        Ok(answer.status.context("a token request without an answer")?.token)
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

    /// Stops answering without closing a connection, as a server that hangs does.
    pub fn freeze(&self) -> Result<()> {
        self.running()?.signal(Signal::SIGSTOP)
    }

    pub fn resume(&self) -> Result<()> {
        self.running()?.signal(Signal::SIGCONT)
    }

    /// Stops the store of the API server, which goes on answering what it can without it.
    pub fn freeze_etcd(&self) -> Result<()> {
        self.store()?.signal(Signal::SIGSTOP)
    }

    pub fn resume_etcd(&self) -> Result<()> {
        self.store()?.signal(Signal::SIGCONT)
    }

    /// Ends API server and etcd; the data stay.
    pub async fn stop(&mut self) -> Result<()> {
        for process in [self.api.take(), self.etcd.take()].into_iter().flatten() {
            process.terminate(Duration::from_secs(30)).await?;
        }
        Ok(())
    }

    /// Kills API server and etcd, without waiting for watches to end as [`stop`](Self::stop) does; the data stay.
    pub fn crash(&mut self) {
        self.api = None;
        self.etcd = None;
    }

    /// Starts again what [`stop`](Self::stop) or [`crash`](Self::crash) has ended, with the same data.
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.api.is_none(), "the API server is running");
        self.start_processes().await
    }

    fn running(&self) -> Result<&Process> {
        self.api.as_ref().context("the API server has been stopped")
    }

    fn store(&self) -> Result<&Process> {
        self.etcd.as_ref().context("etcd has been stopped")
    }

    async fn start_processes(&mut self) -> Result<()> {
        self.etcd = Some(self.launch("etcd", &self.etcd_flags()).await?);
        self.api = Some(self.launch("kube-apiserver", &self.api_flags()).await?);
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
            let kubeconfig = self.folder.join(format!("{name}.kubeconfig"));
            write_private(&kubeconfig, &self.kubeconfig_for(user, &[])?)?;
            let mut flags = Vec::from(
                ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                    .map(|flag| format!("--{flag}={}", kubeconfig.display())),
            );
            flags.extend(
                ["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"].map(String::from),
            );
            flags.push(format!("--cert-dir={}", self.folder.display()));
            if name == "kube-controller-manager" {
                flags.extend(self.controller_manager_flags());
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
        self.lab.network().enter(invocation).start(name, &self.folder.join(format!("{name}.log")))
    }

    fn etcd_flags(&self) -> Vec<String> {
        let data = format!("--data-dir={}", self.folder.join("etcd").display());
        // A test's data need not survive the machine, and fsync is most of etcd's time.
        [
            &data,
            "--unsafe-no-fsync",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--log-level=warn",
        ]
        .map(str::to_owned)
        .into()
    }

    fn api_flags(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        vec![
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            "--bind-address=10.99.0.1".to_owned(),
            "--secure-port=6443".to_owned(),
            // Nobody resolves the `kubernetes` Service by this, and endpoints would need a lease loop.
            "--endpoint-reconciler-type=none".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
            format!("--kubelet-client-key={}", file("kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!("--service-account-signing-key-file={}", file("service-account.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--allow-privileged=true".to_owned(),
            // Webhooks in pods are reached directly, because no kube-proxy runs next to the API server.
            "--enable-aggregator-routing=true".to_owned(),
            format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
            format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--cert-dir={}", self.folder.display()),
            "--profiling=false".to_owned(),
        ]
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        vec![
            "--use-service-account-credentials=true".to_owned(),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--service-account-private-key-file={}", file("service-account.key")),
            format!("--cluster-signing-cert-file={}", file("ca.crt")),
            format!("--cluster-signing-key-file={}", file("ca.key")),
            format!("--cluster-cidr={POD_RANGE}"),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        ]
    }
}

fn write_keys(authority: &Authority, folder: &std::path::Path) -> Result<()> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "10.99.0.1",
        "10.98.0.1",
        "10.96.0.1",
    ];
    authority.identity().write(folder, "ca")?;
    authority.server("kube-apiserver", &names)?.write(folder, "apiserver")?;
    authority
        .client("kube-apiserver-kubelet-client", &["system:masters"])?
        .write(folder, "kubelet-client")?;
    let front_proxy = Authority::new("knmstate-rig-front-proxy-ca")?;
    front_proxy.identity().write(folder, "front-proxy-ca")?;
    front_proxy.client("front-proxy-client", &[])?.write(folder, "front-proxy-client")?;
    let (private, public) = pki::signing_keys()?;
    std::fs::write(folder.join("service-account.pub"), public)?;
    write_private(&folder.join("service-account.key"), &private)
}

async fn client_from(kubeconfig: &str) -> Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

async fn config_from(kubeconfig: &str) -> Result<Config> {
    let config = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    // The machine's own proxy settings have no business with a server on loopback.
    config.proxy_url = None;
    Ok(config)
}
