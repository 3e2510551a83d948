//! A directory of policies instead of a cluster: the store of a node without Kubernetes.

mod output;
pub(crate) mod policies;
mod watch;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus,
    NodeNetworkConfigurationPolicySpec, Permit,
};
use knmstate_core::{
    order::{self, OrderSource},
    probes::ApiAccess,
    selects,
};
use tokio::sync::watch as channel;

pub use self::policies::{PolicyFileError, PolicyFiles};
use self::{output::Output, watch::DirectoryWatch};
use crate::{
    ledger::Ledger,
    store::{Order, Orders, ReportedNetwork, Store},
};

/// The directories of a node without Kubernetes, and how policies select it.
#[derive(Clone, Debug)]
pub struct DirectoryStoreOptions {
    /// The directory with the policies.
    pub policies: PathBuf,
    /// The directory for the node state and the enactments. Without one they are not written.
    pub output: Option<PathBuf>,
    /// The name of the node.
    pub node: String,
    /// The labels by which policies select this node.
    pub labels: BTreeMap<String, String>,
}

/// The store of a node without Kubernetes. Clones share its state.
#[derive(Clone, Debug)]
pub struct DirectoryStore(Arc<SharedState>);

#[derive(Debug)]
struct SharedState {
    options: DirectoryStoreOptions,
    output: Output,
    orders: channel::Sender<Option<Arc<Orders>>>,
    loaded: Mutex<LoadedPolicies>,
}

/// The last reading of the directory, and the orders from it.
#[derive(Debug, Default)]
struct LoadedPolicies {
    files: PolicyFiles,
    orders: BTreeMap<String, NodeNetworkConfigurationEnactmentSpec>,
}

impl DirectoryStore {
    /// Reads the directory once. The `ledger` has the generation of each known policy. Fails when the directory cannot
    /// be read.
    pub fn open(options: DirectoryStoreOptions, ledger: &Ledger) -> io::Result<Self> {
        let orders =
            ledger.entries().iter().map(|(policy, entry)| (policy.clone(), entry.spec.clone())).collect();
        let store = Self(Arc::new(SharedState {
            output: Output { directory: options.output.clone(), node: options.node.clone() },
            options,
            orders: channel::Sender::new(None),
            loaded: Mutex::new(LoadedPolicies { files: PolicyFiles::default(), orders }),
        }));
        store.reload()?;
        Ok(store)
    }

    /// The policies in the directory, and the errors in its files.
    pub fn policy_files(&self) -> PolicyFiles {
        self.loaded().files.clone()
    }

    /// The policies in the directory that do not select this node.
    pub fn not_selected(&self) -> Vec<String> {
        let labels = &self.0.options.labels;
        let policies = self.loaded().files.policies.clone();
        policies
            .into_iter()
            .filter(|(_, (_, policy))| !selects(&policy.spec, labels))
            .map(|(name, _)| name)
            .collect()
    }

    /// Reloads the policies whenever the directory changes. Returns only when it cannot be watched.
    pub async fn follow(&self) -> io::Result<Infallible> {
        let mut watch = DirectoryWatch::new(self.0.options.policies.clone())?;
        loop {
            // The first reading has the changes from before the watch began.
            if let Err(error) = self.reload() {
                let directory = self.0.options.policies.display();
                tracing::warn!(%directory, %error, "cannot read the policies; the ones read before stay in effect");
            }
            watch.changed().await?;
        }
    }

    fn reload(&self) -> io::Result<()> {
        let options = &self.0.options;
        let orders = {
            let mut loaded = self.loaded();
            let files = policies::read(&options.policies, &loaded.files)?;
            for error in files.errors.iter().filter(|error| !loaded.files.errors.contains(error)) {
                tracing::error!("{error}");
            }
            let selected =
                files.policies.iter().filter(|(_, (_, policy))| selects(&policy.spec, &options.labels));
            let orders: BTreeMap<_, _> = selected
                .map(|(name, (_, policy))| {
                    let order = order_of(&options.node, name, &policy.spec, loaded.orders.get(name));
                    (name.clone(), order)
                })
                .collect();
            for gone in loaded.orders.keys().filter(|name| !orders.contains_key(*name)) {
                if let Err(error) = self.0.output.remove_enactment(gone) {
                    tracing::warn!(policy = gone, %error, "cannot remove the enactment");
                }
            }
            *loaded = LoadedPolicies { files, orders: orders.clone() };
            orders
        };
        let orders =
            orders.into_iter().map(|(policy, spec)| (policy, Order { spec, status: None })).collect();
        self.0.orders.send_if_modified(|current| {
            let is_new = current.as_deref() != Some(&orders);
            if is_new {
                *current = Some(Arc::new(orders));
            }
            is_new
        });
        Ok(())
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, LoadedPolicies> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order of a policy for this node. When it differs from the one `before`, it has a new generation.
fn order_of(
    node: &str,
    name: &str,
    policy: &NodeNetworkConfigurationPolicySpec,
    before: Option<&NodeNetworkConfigurationEnactmentSpec>,
) -> NodeNetworkConfigurationEnactmentSpec {
    let generation = before.map_or(1, |before| before.policy_generation);
    let source = OrderSource { name, uid: None, generation };
    // There is no controller whose permit the node would have to wait for.
    let order = order::order(node, source, policy, policy.desired_state.clone(), Permit::Apply);
    match before {
        Some(before) if *before != order => {
            NodeNetworkConfigurationEnactmentSpec { policy_generation: generation + 1, ..order }
        }
        _ => order,
    }
}

impl Store for DirectoryStore {
    fn orders(&self) -> channel::Receiver<Option<Arc<Orders>>> {
        let mut orders = self.0.orders.subscribe();
        orders.mark_changed();
        orders
    }

    fn report_status(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        if let Err(error) = self.0.output.write_enactment(policy, &status) {
            tracing::warn!(policy, %error, "cannot write the enactment");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a report carries its time")]
    fn publish(&self, network: ReportedNetwork) {
        if let Err(error) = self.0.output.write_state(&network, Timestamp::now()) {
            tracing::warn!(%error, "cannot write the node state");
        }
    }

    fn refresh_requested(&self) -> impl Future<Output = ()> + Send {
        future::pending()
    }

    fn api_access(&self) -> ApiAccess {
        ApiAccess::None
    }

    /// Results are written to their files at once.
    async fn flush(&self, _: Duration) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn policy(name: &str, rest: &str) -> String {
        format!(
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{ name: {name} }}\n{rest}"
        )
    }

    struct Fixture {
        directory: tempfile::TempDir,
        store: DirectoryStore,
    }

    impl Fixture {
        fn new(labels: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir(directory.path().join("policies")).unwrap();
            let ledger = Ledger::open(directory.path().join("orders")).unwrap();
            let options = DirectoryStoreOptions {
                policies: directory.path().join("policies"),
                output: Some(directory.path().join("output")),
                node: "n1".to_owned(),
                labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            };
            let store = DirectoryStore::open(options, &ledger).unwrap();
            Self { directory, store }
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.directory.path().join("policies").join(file), text).unwrap();
        }

        fn generations(&self) -> Vec<(String, i64)> {
            self.store.reload().unwrap();
            let orders = self.store.orders().borrow().clone().unwrap();
            orders.iter().map(|(name, order)| (name.clone(), order.spec.policy_generation)).collect()
        }
    }

    #[test]
    fn only_a_policy_that_changes_gets_a_new_generation() {
        let fixture = Fixture::new(&[]);
        fixture.write("a.yaml", &policy("a", ""));
        assert_eq!(fixture.generations(), [("a".to_owned(), 1)]);
        fixture.write("a.yaml", &policy("a", "# a remark\nspec: {}\n"));
        assert_eq!(fixture.generations(), [("a".to_owned(), 1)]);
        fixture.write("a.yaml", &policy("a", "spec: { desiredState: { hostname: { running: x } } }"));
        assert_eq!(fixture.generations(), [("a".to_owned(), 2)]);
        assert_eq!(fixture.generations(), [("a".to_owned(), 2)]);
    }

    #[test]
    fn policies_for_other_nodes_are_no_orders() {
        let fixture = Fixture::new(&[("role", "worker")]);
        fixture.write("a.yaml", &policy("a", "spec: { nodeSelector: { role: worker } }"));
        fixture.write("b.yaml", &policy("b", "spec: { nodeSelector: { role: master } }"));
        assert_eq!(fixture.generations(), [("a".to_owned(), 1)]);
        assert_eq!(fixture.store.not_selected(), ["b"]);
    }

    #[test]
    fn results_are_written_to_files_that_are_removed_with_their_policy() {
        let fixture = Fixture::new(&[]);
        fixture.write("a.yaml", &policy("a", ""));
        fixture.generations();
        fixture.store.report_status(
            "a",
            NodeNetworkConfigurationEnactmentStatus { policy_generation: 7, ..Default::default() },
        );
        let path = fixture.directory.path().join("output/nnce-n1.a.yaml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("name: n1.a") && text.contains("policyGeneration: 7"), "{text}");
        fs::remove_file(fixture.directory.path().join("policies/a.yaml")).unwrap();
        fixture.generations();
        assert!(!path.exists());

        let network = ReportedNetwork {
            state: serde_json::from_str(r#"{"interfaces":[{"name":"eth0"}]}"#).unwrap(),
            omitted: Vec::new(),
            links: Vec::new(),
            set_aside: Vec::new(),
            nmstate_version: "2".to_owned(),
            network_manager_version: "1".to_owned(),
        };
        fixture.store.publish(network.clone());
        let path = fixture.directory.path().join("output/nns-n1.yaml");
        let first = fs::metadata(&path).unwrap().modified().unwrap();
        fixture.store.publish(network);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), first, "the same is not written again");
    }

    #[tokio::test]
    async fn a_change_in_the_directory_is_followed() {
        let fixture = Fixture::new(&[]);
        let mut orders = fixture.store.orders();
        let store = fixture.store.clone();
        let following = tokio::spawn(async move { store.follow().await });
        for (file, names) in [("a.yaml", vec!["a"]), ("b.yaml", vec!["a", "b"])] {
            fixture.write(file, &policy(&file[..1], ""));
            let all =
                |orders: &Option<Arc<Orders>>| orders.as_ref().is_some_and(|orders| orders.keys().eq(&names));
            tokio::time::timeout(Duration::from_secs(20), orders.wait_for(all)).await.unwrap().unwrap();
        }
        following.abort();
    }
}
