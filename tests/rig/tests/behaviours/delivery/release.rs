//! A release of the chart on a real API server, without nodes: installed, upgraded, used, removed.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_operator::{DEFINITION, KINDS};
use rig::{
    ApiServer, BoundTo, Lab, Output, binaries, helm::chart, process::Invocation, role::RoleSetup, wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);
const INSTALL: [&str; 5] =
    ["install", "knmstate", "--namespace=nmstate", "--create-namespace", "--wait=hookOnly"];

/// The objects with these labels, of the kinds that chart and operator create, as `kind namespace/name`.
async fn labelled_objects(api: &ApiServer, selector: &str) -> Result<BTreeSet<String>> {
    let kinds = KINDS.iter().filter(|kind| kind.built_in && **kind != DEFINITION);
    let kinds: Vec<String> = kinds.map(|kind| format!("{}.{}", kind.plural, kind.group())).collect();
    let selector = format!("--selector={selector}");
    let list = api.kubectl(["get", &kinds.join(","), "--all-namespaces", &selector, "--output=json"]).await?;
    let list = list.json()?;
    let items = list["items"].as_array().context("a list")?.iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |item: &Value| {
        let metadata = &item["metadata"];
        format!("{} {}/{}", text(&item["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
    };
    Ok(items.map(name).collect())
}

const OF_CHART: &str = "app=kubernetes-nmstate-operator";
const OF_OPERATOR: &str = "app.kubernetes.io/managed-by=nmstate-operator";

#[tokio::test]
async fn it_is_installed_upgraded_and_uninstalled() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let chart = chart();
    let create = "--set=nmstate.create=true";
    api.helm(INSTALL.into_iter().chain([create, &chart])).await?.success()?;
    let installed = labelled_objects(&api, OF_CHART).await?;
    ensure!(installed.contains("Deployment nmstate/nmstate-operator"), "{installed:#?}");
    ensure!(installed.len() >= 13, "{installed:#?}");
    api.kubectl(["get", "nmstate", "nmstate"]).await?.success()?;

    let operator = async || {
        let get = ["get", "deployment", "nmstate-operator", "--namespace=nmstate", "--output=json"];
        api.kubectl(get).await?.json()
    };
    let before = operator().await?;
    let upgrade = [
        "upgrade",
        "knmstate",
        &chart,
        "--namespace=nmstate",
        "--wait=hookOnly",
        "--reset-then-reuse-values",
    ];
    api.helm(upgrade).await?.success()?;
    assert_eq!(
        operator().await?["metadata"]["generation"],
        before["metadata"]["generation"],
        "the Deployment was changed"
    );
    let changed = "--set=retries.max=7,nmstate.spec.logLevel=debug";
    api.helm(upgrade.into_iter().chain([changed])).await?.success()?;
    let after = operator().await?.to_string();
    ensure!(after.contains(r#"{"name":"NNCP_MAX_RETRIES","value":"7"}"#), "{after}");
    let level = ["get", "nmstate", "nmstate", "--output=jsonpath={.spec.logLevel}"];
    assert_eq!(api.kubectl(level).await?.success()?, "debug");
    // A second release with the same names is refused.
    let second = ["install", "other", "--namespace=nmstate", "--wait=hookOnly", &chart];
    let second = api.helm(second).await?;
    ensure!(
        !second.status.success() && second.stderr().contains("cannot be imported"),
        "{}",
        second.stderr()
    );

    // The removal is a pod, and no kubelet runs here.
    api.helm(["uninstall", "knmstate", "--namespace=nmstate", "--no-hooks"]).await?.success()?;
    assert_eq!(labelled_objects(&api, OF_CHART).await?, BTreeSet::new());
    let kinds = api.kubectl(["get", "customresourcedefinitions", "--output=name"]).await?.success()?;
    assert_eq!(kinds.lines().filter(|name| name.ends_with(".nmstate.io")).count(), 4, "{kinds}");
    let nmstates = api.kubectl(["get", "nmstates", "--output=name"]).await?.success()?;
    assert_eq!(nmstates, "");
    Ok(())
}

/// Processes of the product, with the service accounts of the chart.
struct Processes<'a> {
    lab: &'a Lab,
    api: &'a ApiServer,
}

impl Processes<'_> {
    async fn kubeconfig(&self, account: &str) -> Result<String> {
        let token = self.api.token("nmstate", account, BoundTo::Nothing).await?;
        Ok(self.api.kubeconfig_with_token(&token))
    }

    async fn operator(&self) -> Result<RoleSetup> {
        let kubeconfig = self.kubeconfig("nmstate-operator").await?;
        let setup = RoleSetup::new(self.lab, binaries::knmstate().await?, "operator", &kubeconfig)?;
        Ok(setup
            .env("RELATED_IMAGE_HANDLER_IMAGE", "localhost/knmstate:dev")
            .arg("--health-address=0")
            .with_lease(Duration::from_secs(3)))
    }

    /// Applies what a hook of the chart needs, as Helm does, and runs its command.
    async fn hook(&self, template: &str, account: &str, arguments: &[&str]) -> Result<Output> {
        let show = format!("--show-only=templates/{template}.yaml");
        let rendered = self
            .lab
            .helm(["template", "knmstate", "--namespace=nmstate", &show, &chart()])
            .await?
            .success()?;
        let objects = super::objects(&rendered)?;
        let rights =
            objects.into_iter().filter(|(name, _)| !name.starts_with("Job") && !name.starts_with("Pod"));
        for (_, object) in rights {
            self.api.kubectl_with(&object.to_string(), ["apply", "-f", "-"]).await?.success()?;
        }
        let kubeconfig = self.lab.directory().join(format!("{account}.kubeconfig"));
        fs::write(&kubeconfig, self.kubeconfig(account).await?)?;
        let invocation = Invocation::new([binaries::knmstate().await?.display().to_string()])
            .args(arguments.iter().copied())
            .arg(format!("--kubeconfig={}", kubeconfig.display()));
        self.lab.network().enter(invocation).run(LIMIT).await
    }
}

/// An older definition of the same name, as kubernetes-nmstate leaves it.
const OLD_DEFINITION: &str = r#"{
  "apiVersion": "apiextensions.k8s.io/v1",
  "kind": "CustomResourceDefinition",
  "metadata": {"name": "nmstates.nmstate.io"},
  "spec": {
    "group": "nmstate.io",
    "names": {"kind": "NMState", "listKind": "NMStateList", "plural": "nmstates", "singular": "nmstate"},
    "scope": "Cluster",
    "versions": [
      {"name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
       "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
    ]
  }
}"#;

#[tokio::test]
async fn its_accounts_have_the_rights_that_they_need_and_no_more() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().with_controllers().start().await?;
    // Helm does not take over the definition of kubernetes-nmstate, and the operator replaces it.
    api.kubectl_with(OLD_DEFINITION, ["create", "-f", "-"]).await?.success()?;
    let conflicting = api.helm(INSTALL.into_iter().chain([chart().as_str()])).await?;
    ensure!(conflicting.stderr().contains("conflict"), "{}{}", conflicting.stdout(), conflicting.stderr());
    assert_eq!(labelled_objects(&api, OF_CHART).await?, BTreeSet::new());
    api.helm(INSTALL.into_iter().chain(["--skip-crds", chart().as_str()])).await?.success()?;
    let processes = Processes { lab: &lab, api: &api };
    let setup = processes.operator().await?;
    let operator = setup.start("operator")?;
    let until_handler = async |what: &str, exists: bool| {
        let reached = wait::until(LIMIT, what, async || {
            let found = labelled_objects(&api, OF_OPERATOR).await?;
            ensure!(found.contains("DaemonSet nmstate/nmstate-handler") == exists, "{found:#?}");
            Ok(found)
        })
        .await;
        reached.with_context(|| setup.logs(20))
    };
    let nmstate = super::asset(&lab, "nmstate.io_v1_nmstate_cr.yaml")?;
    wait::until(LIMIT, "the definition to be replaced", async || {
        api.kubectl(["apply", "-f", &nmstate]).await?.success()
    })
    .await
    .with_context(|| setup.logs(20))?;
    let created = until_handler("the operator to create everything", true).await?;
    ensure!(created.len() > 20, "{created:#?}");
    ensure!(!setup.logs(200).contains("forbidden"), "{}", setup.logs(200));

    // It cannot grant what it does not have, and has no access to other namespaces.
    let account = "--as=system:serviceaccount:nmstate:nmstate-operator";
    let admin = ["create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=me", account];
    let refused = api.kubectl(admin).await?;
    ensure!(
        refused.stderr().contains("attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.stderr()
    );
    for (verb, what) in
        [("get", "secrets"), ("delete", "clusterroles"), ("create", "deployments"), ("create", "pods")]
    {
        let answer = api.kubectl(["auth", "can-i", verb, what, "--namespace=kube-system", account]).await?;
        assert_eq!(answer.stdout().trim(), "no", "{verb} {what}");
    }

    let checked = processes.hook("check", "nmstate-checker", &["check", "--timeout=0"]).await?;
    assert_eq!(checked.status.code(), Some(1));
    let output = checked.stdout();
    ensure!(output.contains("failed  NMState nmstate is not Available"), "{output}{}", checked.stderr());
    ensure!(output.contains("failed  no node has a handler"), "{output}");
    ensure!(!output.contains("cannot"), "{output}");

    // The removal deletes the operator's Deployment, but here the operator is a process of the test.
    operator.stop().await?;
    let removed = processes.hook("removal", "nmstate-remover", &["remove", "--timeout=50"]).await?;
    removed.success()?;
    assert_eq!(
        labelled_objects(&api, OF_OPERATOR).await?.into_iter().collect::<Vec<_>>(),
        ["Namespace /nmstate"]
    );
    let operators = labelled_objects(&api, OF_CHART).await?;
    ensure!(!operators.contains("Deployment nmstate/nmstate-operator"), "{operators:#?}");
    api.helm(["uninstall", "knmstate", "--namespace=nmstate", "--no-hooks"]).await?.success()?;
    Ok(())
}
