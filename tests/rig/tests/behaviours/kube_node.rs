//! A kubelet node: real pods on it, a real NetworkManager under it, and nothing of it left afterwards.

use std::{collections::BTreeSet, fs, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Pod, Service},
};
use kube::{Api, ResourceExt as _, api::ListParams, api::PostParams};
use rig::{ApiServer, KubeNode, Lab, images, kube_node, leftovers, process::Invocation, skip, wait};
use serde_json::{Value, json};

const PODS_LIMIT: Duration = Duration::from_mins(2);
const SHORT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_daemon_set_of_our_image_runs_and_leaves_nothing_behind() -> Result<()> {
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let before = machine_state().await?;
    let lab = Lab::new().await?;
    let id = lab.id().to_owned();
    let api = lab.api_server().with_controllers().start().await?;
    let node = lab.kube_node("node1", &api).image(images::knmstate().await?).start().await?;
    let devices = node.exec(["nmcli", "-t", "-f", "DEVICE,STATE", "device"]).await?.success()?;
    for line in ["eth0:connected", "eth1:disconnected", "eth2:disconnected"] {
        ensure!(devices.lines().any(|found| found == line), "{line} is not in:\n{devices}");
    }
    nothing_written_reaches_the_machine(&node).await?;

    // knmstate only prints its CRDs here; the rig's own program keeps the pod running.
    let pod_spec = json!({
        "hostNetwork": true,
        "initContainers": [privileged(container("knmstate", images::KNMSTATE, &["crds"]))],
        "containers": [privileged(container("stay", images::POD, &[]))],
    });
    let pods = daemon_set(&api, "ours", &pod_spec, 1).await?;
    let pod = pods.first().context("a pod")?;
    let log = api.kubectl(["logs", &pod.name_any(), "--container=knmstate"]).await?.success()?;
    for name in [
        "nodenetworkconfigurationpolicies",
        "nodenetworkconfigurationenactments",
        "nodenetworkstates",
        "nmstates",
    ] {
        ensure!(log.contains(&format!("name: {name}.nmstate.io")), "no {name} in the log:\n{log}");
    }
    let host = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    assert_eq!(host, Some(node.address()), "the pod is in the network of its host");

    ensure!(leftovers::processes(&id)?.len() > 10, "the search for processes finds too little to be trusted");
    drop((node, api, lab));
    // At once, not after a while: removing its cgroups is the last thing that a node does.
    assert_eq!(leftovers::processes(&id)?, BTreeSet::new());
    wait::until(SHORT_LIMIT, "nothing to be left", async || {
        let left = leftovers::of_lab(&id)?;
        ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await?;
    assert_eq!(machine_state().await?, before);
    Ok(())
}

#[tokio::test]
async fn pods_are_reached_from_the_api_server_and_from_other_nodes() -> Result<()> {
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let lab = Lab::new().await?;
    let api = lab.api_server().with_controllers().start().await?;
    let (mut node1, node2) =
        tokio::try_join!(lab.kube_node("node1", &api).start(), lab.kube_node("node2", &api).start())?;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }))?;
    let services: Api<Service> = Api::namespaced(api.client(), "default");
    let service = services.create(&PostParams::default(), &service).await?;
    let service = service.spec.and_then(|spec| spec.cluster_ip).context("a cluster address")?;
    let pod_spec = json!({ "containers": [container("web", images::POD, &["8080"])] });
    let pods = daemon_set(&api, "web", &pod_spec, 2).await?;

    for (node, other) in [(&node1, &node2), (&node2, &node1)] {
        let (name, address) = pod_on(&pods, node)?;
        ensure!(is_in(&address, node.pod_cidr()), "{address} is not of {}", node.pod_cidr());
        let socket: SocketAddr = format!("{address}:8080").parse()?;
        lab.network().connect(socket).await.context("from the namespace of the API server")?;
        let path = format!("/api/v1/namespaces/default/pods/{name}:8080/proxy/");
        let answer = api.kubectl(["get", "--raw", &path]).await?.success().context("by the API server")?;
        assert_eq!(answer.trim(), name);
        let answer = curl(other, &format!("http://{address}:8080")).await.context("from the other node")?;
        assert_eq!(answer.trim(), name);
        eventually_curls(other, &format!("http://{service}")).await.context("by its Service")?;
        eventually_curls(other, "https://10.96.0.1/livez").await.context("the API server by its Service")?;
    }

    // Without its kubelet a node's pods go on serving, and a new kubelet takes them over.
    let (name, address) = pod_on(&pods, &node1)?;
    node1.stop_kubelet().await?;
    assert_eq!(curl(&node2, &format!("http://{address}:8080")).await?.trim(), name);
    node1.start_kubelet().await?;
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    let pod: Value = serde_json::from_str(&api.kubectl(["get", "--raw", &path]).await?.success()?)?;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod:#}");
    Ok(())
}

async fn nothing_written_reaches_the_machine(node: &KubeNode) -> Result<()> {
    let files = ["/etc/rig-was-here", "/usr/rig-was-here", "/var/lib/rig-was-here"];
    node.exec(["touch"].into_iter().chain(files)).await?.success()?;
    for file in files {
        ensure!(!fs::exists(file)?, "{file} is on the machine");
    }
    // Writes the current value, so that a write that succeeds changes nothing.
    let setting = "/proc/sys/vm/swappiness";
    let write = node.exec(["sh", "-c", &format!("cat {setting} >{setting}")]).await?;
    ensure!(
        write.stderr().contains("Read-only"),
        "{setting} is the machine's, and can be written: {write:?}"
    );
    Ok(())
}

fn container(name: &str, image: &str, args: &[&str]) -> Value {
    json!({ "name": name, "image": image, "args": args, "imagePullPolicy": "Never" })
}

fn privileged(mut container: Value) -> Value {
    container["securityContext"] = json!({ "privileged": true });
    container
}

/// Makes a DaemonSet and returns its pods when that many are ready.
async fn daemon_set(api: &ApiServer, name: &str, pod_spec: &Value, count: i32) -> Result<Vec<Pod>> {
    let labels = json!({ "app": name });
    let set: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }))?;
    let sets: Api<DaemonSet> = Api::namespaced(api.client(), "default");
    sets.create(&PostParams::default(), &set).await?;
    let pods: Api<Pod> = Api::namespaced(api.client(), "default");
    let of_set = ListParams::default().labels(&format!("app={name}"));
    wait::until(PODS_LIMIT, &format!("the pods of {name}"), async || {
        let ready = sets.get(name).await?.status.map_or(0, |status| status.number_ready);
        let pods = pods.list(&of_set).await?.items;
        let details = serde_json::to_string_pretty(&pods.iter().map(|pod| &pod.status).collect::<Vec<_>>())?;
        ensure!(ready == count, "{ready} of {count} are ready: {details}");
        Ok(pods)
    })
    .await
}

/// Name and address of the pod on a node.
fn pod_on(pods: &[Pod], node: &KubeNode) -> Result<(String, String)> {
    let on_node =
        |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.name());
    let pod = pods.iter().find(on_node).with_context(|| format!("no pod on {}", node.name()))?;
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    Ok((pod.name_any(), address.context("a pod without an address")?))
}

fn is_in(address: &str, cidr: &str) -> bool {
    cidr.strip_suffix("0/24").is_some_and(|network| address.starts_with(network))
}

async fn curl(node: &KubeNode, url: &str) -> Result<String> {
    node.exec(["curl", "--silent", "--show-error", "--fail", "--insecure", "--max-time", "5", url])
        .await?
        .success()
}

/// kube-proxy needs a moment to program a Service.
async fn eventually_curls(node: &KubeNode, url: &str) -> Result<String> {
    wait::until(SHORT_LIMIT, url, async || curl(node, url).await).await
}

/// Settings of the machine that a node could change by mistake.
async fn machine_state() -> Result<Vec<String>> {
    let mut state = Vec::from_iter(leftovers::machine_wide_names());
    for setting in ["net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"] {
        state.push(format!("{setting}={}", fs::read_to_string(format!("/proc/sys/{setting}"))?));
    }
    for directory in
        ["/var/lib/kubelet", "/var/lib/cni/networks", "/var/log/pods", "/etc/cni/net.d", "/run/containerd"]
    {
        state.push(format!("{directory}: {:?}", fs::read_dir(directory).map(Iterator::count).ok()));
    }
    let rules = Invocation::new(["nft", "list", "ruleset"]).run(SHORT_LIMIT).await?.success()?;
    state.push(rules);
    Ok(state)
}
