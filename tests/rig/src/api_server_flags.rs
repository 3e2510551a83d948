//! How etcd, kube-apiserver and kube-controller-manager are started: their flags, and the files that these name.

use std::path::Path;

use anyhow::Result;

use crate::{
    api_server::POD_RANGE,
    pki::{self, Authority},
    process::write_private,
};

const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Flags of etcd.
pub(crate) fn etcd(directory: &Path) -> Vec<String> {
    let data = format!("--data-dir={}", directory.join("etcd").display());
    // The data are not needed after a crash of the machine, and fsync takes most of etcd's time.
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

/// Flags of kube-apiserver, with the files of [`write_keys`].
pub(crate) fn api_server(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        "--bind-address=10.99.0.1".to_owned(),
        "--secure-port=6443".to_owned(),
        // Otherwise it would renew a lease all the time. KubeNode writes the endpoints of the `kubernetes` Service.
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
        // The API server calls webhooks at the addresses of their pods, because no kube-proxy runs beside it.
        "--enable-aggregator-routing=true".to_owned(),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--cert-dir={}", directory.display()),
        "--profiling=false".to_owned(),
    ]
}

/// Flags of kube-controller-manager besides those that it shares with the scheduler.
pub(crate) fn controller_manager(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
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

/// Writes the keys and certificates that the flags name.
pub(crate) fn write_keys(authority: &Authority, directory: &Path) -> Result<()> {
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
    authority.identity().write(directory, "ca")?;
    authority.server("kube-apiserver", &names)?.write(directory, "apiserver")?;
    authority
        .client("kube-apiserver-kubelet-client", &["system:masters"])?
        .write(directory, "kubelet-client")?;
    let front_proxy = Authority::new("knmstate-rig-front-proxy-ca")?;
    front_proxy.identity().write(directory, "front-proxy-ca")?;
    front_proxy.client("front-proxy-client", &[])?.write(directory, "front-proxy-client")?;
    let (private, public) = pki::signing_keys()?;
    std::fs::write(directory.join("service-account.pub"), public)?;
    write_private(&directory.join("service-account.key"), &private)
}
