//! A folder of policies instead of a cluster: the store of a machine that stands alone.

mod output;
pub(crate) mod policies;
mod watch;

use std::{
    collections::BTreeMap,
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
    order::{self, Source},
    probes::ApiAccess,
    selection::selects,
};
use tokio::sync::watch as channel;

pub use self::policies::{Found, Mistake};
use self::{output::Output, watch::Watched};
use crate::{
    ledger::Ledger,
    store::{Order, Orders, ReportedNetwork, Store},
};

/// Where a standing-alone machine has its policies, and where it says what became of them.
#[derive(Clone, Debug)]
pub struct Options {
    pub policies: PathBuf,
    pub output: Option<PathBuf>,
    pub node: String,
    /// The labels by which policies select this machine.
    pub labels: BTreeMap<String, String>,
}

/// The store. Clones share everything.
#[derive(Clone, Debug)]
pub struct DirectoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    output: Output,
    orders: channel::Sender<Option<Arc<Orders>>>,
    known: Mutex<Known>,
}

/// What was found last, and the orders that were made of it.
#[derive(Debug, Default)]
struct Known {
    found: Found,
    given: BTreeMap<String, NodeNetworkConfigurationEnactmentSpec>,
}

impl DirectoryStore {
    /// Reads the folder once. `ledger` tells which generation each policy had.
    pub fn open(options: Options, ledger: &Ledger) -> io::Result<Self> {
        let given =
            ledger.entries().iter().map(|(policy, entry)| (policy.clone(), entry.spec.clone())).collect();
        let store = Self(Arc::new(Inner {
            output: Output { folder: options.output.clone(), node: options.node.clone() },
            options,
            orders: channel::Sender::new(None),
            known: Mutex::new(Known { found: Found::default(), given }),
        }));
        store.read_again()?;
        Ok(store)
    }

    /// What the folder holds, and what is wrong with it.
    pub fn found(&self) -> Found {
        self.known().found.clone()
    }

    /// The policies of the folder that are not for this machine.
    pub fn not_selected(&self) -> Vec<String> {
        let labels = &self.0.options.labels;
        let found = self.known().found.policies.clone();
        found
            .into_iter()
            .filter(|(_, (_, policy))| !selects(&policy.spec, labels))
            .map(|(name, _)| name)
            .collect()
    }

    /// Follows the folder until the end of time.
    pub async fn follow(&self) -> io::Result<()> {
        let mut folder = Watched::new(self.0.options.policies.clone())?;
        loop {
            // The first look covers what happened before the folder was watched.
            if let Err(error) = self.read_again() {
                tracing::warn!(folder = %self.0.options.policies.display(), %error, "the policies cannot be read; those known hold");
            }
            folder.changed().await?;
        }
    }

    fn read_again(&self) -> io::Result<()> {
        let options = &self.0.options;
        let orders = {
            let mut known = self.known();
            let found = policies::read(&options.policies, &known.found)?;
            for mistake in found.mistakes.iter().filter(|mistake| !known.found.mistakes.contains(mistake)) {
                tracing::error!("{mistake}");
            }
            let selected =
                found.policies.iter().filter(|(_, (_, policy))| selects(&policy.spec, &options.labels));
            let given: BTreeMap<_, _> = selected
                .map(|(name, (_, policy))| {
                    let order = order_of(&options.node, name, &policy.spec, known.given.get(name));
                    (name.clone(), order)
                })
                .collect();
            for gone in known.given.keys().filter(|name| !given.contains_key(*name)) {
                if let Err(error) = self.0.output.remove_enactment(gone) {
                    tracing::warn!(policy = gone, %error, "its enactment cannot be removed");
                }
            }
            *known = Known { found, given: given.clone() };
            given
        };
        let orders =
            orders.into_iter().map(|(policy, spec)| (policy, Order { spec, status: None })).collect();
        self.0.orders.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&orders);
            if is_new {
                *known = Some(Arc::new(orders));
            }
            is_new
        });
        Ok(())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order that a policy is for this machine. One that says something new is a new generation.
fn order_of(
    node: &str,
    name: &str,
    policy: &NodeNetworkConfigurationPolicySpec,
    before: Option<&NodeNetworkConfigurationEnactmentSpec>,
) -> NodeNetworkConfigurationEnactmentSpec {
    let generation = before.map_or(1, |before| before.policy_generation);
    let source = Source { name, uid: None, generation };
    // There is nobody to wait for.
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

    fn tell(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        if let Err(error) = self.0.output.write_enactment(policy, &status) {
            tracing::warn!(policy, %error, "its enactment cannot be written");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a report carries its time")]
    fn publish(&self, network: ReportedNetwork) {
        if let Err(error) = self.0.output.write_state(&network, Timestamp::now()) {
            tracing::warn!(%error, "the state of the network cannot be written");
        }
    }

    fn refresh_wanted(&self) -> impl Future<Output = ()> + Send {
        future::pending()
    }

    fn api_access(&self) -> ApiAccess {
        ApiAccess::None
    }

    /// Files are written while they are told.
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

    struct Trial {
        folder: tempfile::TempDir,
        store: DirectoryStore,
    }

    impl Trial {
        fn new(labels: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("policies")).unwrap();
            let ledger = Ledger::open(folder.path().join("orders")).unwrap();
            let options = Options {
                policies: folder.path().join("policies"),
                output: Some(folder.path().join("output")),
                node: "n1".to_owned(),
                labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            };
            let store = DirectoryStore::open(options, &ledger).unwrap();
            Self { folder, store }
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.folder.path().join("policies").join(file), text).unwrap();
        }

        fn generations(&self) -> Vec<(String, i64)> {
            self.store.read_again().unwrap();
            let orders = self.store.orders().borrow().clone().unwrap();
            orders.iter().map(|(name, order)| (name.clone(), order.spec.policy_generation)).collect()
        }
    }

    #[test]
    fn a_policy_that_changes_is_a_new_generation_and_one_that_does_not_is_not() {
        let trial = Trial::new(&[]);
        trial.write("a.yaml", &policy("a", ""));
        assert_eq!(trial.generations(), [("a".to_owned(), 1)]);
        trial.write("a.yaml", &policy("a", "# a remark\nspec: {}\n"));
        assert_eq!(trial.generations(), [("a".to_owned(), 1)]);
        trial.write("a.yaml", &policy("a", "spec: { desiredState: { hostname: { running: x } } }"));
        assert_eq!(trial.generations(), [("a".to_owned(), 2)]);
        assert_eq!(trial.generations(), [("a".to_owned(), 2)]);
    }

    #[test]
    fn policies_for_other_machines_are_no_orders() {
        let trial = Trial::new(&[("role", "worker")]);
        trial.write("a.yaml", &policy("a", "spec: { nodeSelector: { role: worker } }"));
        trial.write("b.yaml", &policy("b", "spec: { nodeSelector: { role: master } }"));
        assert_eq!(trial.generations(), [("a".to_owned(), 1)]);
        assert_eq!(trial.store.not_selected(), ["b"]);
    }

    #[test]
    fn what_is_told_and_published_is_in_files_that_go_with_their_policy() {
        let trial = Trial::new(&[]);
        trial.write("a.yaml", &policy("a", ""));
        trial.generations();
        trial.store.tell(
            "a",
            NodeNetworkConfigurationEnactmentStatus { policy_generation: 7, ..Default::default() },
        );
        let path = trial.folder.path().join("output/nnce-n1.a.yaml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("name: n1.a") && text.contains("policyGeneration: 7"), "{text}");
        fs::remove_file(trial.folder.path().join("policies/a.yaml")).unwrap();
        trial.generations();
        assert!(!path.exists());

        let network = ReportedNetwork {
            state: serde_json::from_str(r#"{"interfaces":[{"name":"eth0"}]}"#).unwrap(),
            omitted: Vec::new(),
            links: Vec::new(),
            nmstate_version: "2".to_owned(),
            network_manager_version: "1".to_owned(),
        };
        trial.store.publish(network.clone());
        let path = trial.folder.path().join("output/nns-n1.yaml");
        let first = fs::metadata(&path).unwrap().modified().unwrap();
        trial.store.publish(network);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), first, "the same is not written again");
    }

    #[tokio::test]
    async fn a_change_of_the_folder_is_followed() {
        let trial = Trial::new(&[]);
        let mut orders = trial.store.orders();
        let store = trial.store.clone();
        let following = tokio::spawn(async move { store.follow().await });
        for (file, names) in [("a.yaml", vec!["a"]), ("b.yaml", vec!["a", "b"])] {
            trial.write(file, &policy(&file[..1], ""));
            let all =
                |orders: &Option<Arc<Orders>>| orders.as_ref().is_some_and(|orders| orders.keys().eq(&names));
            tokio::time::timeout(Duration::from_secs(20), orders.wait_for(all)).await.unwrap().unwrap();
        }
        following.abort();
    }
}
