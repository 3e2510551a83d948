//! RBAC rules as sets of single rights, so that they can be joined, written with few rules, and compared as the API server
//! does.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

/// One verb on one resource, for objects of all names or of one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub group: String,
    /// Such as `nodes` or `nmstates/status`.
    pub resource: String,
    /// `None` for objects of every name.
    pub name: Option<String>,
    pub verb: String,
}

/// The usual order of verbs.
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use"];

/// A set of rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    resources: BTreeSet<Right>,
    /// Non-resource URLs, such as `/metrics`, with their verbs.
    paths: BTreeSet<(String, String)>,
}

impl Rights {
    /// The rights in these rules. A star only covers itself here, which can report a right as missing but never the other
    /// way round.
    pub fn of<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>) -> Self {
        let mut rights = Self::default();
        rights.add_all(rules);
        rights
    }

    /// Adds the rights of rules.
    pub fn add_all<'a>(&mut self, rules: impl IntoIterator<Item = &'a PolicyRule>) {
        for rule in rules {
            self.add(rule);
        }
    }

    /// Adds the rights of a rule.
    pub fn add(&mut self, rule: &PolicyRule) {
        for verb in &rule.verbs {
            for path in rule.non_resource_urls.iter().flatten() {
                self.paths.insert((path.clone(), verb.clone()));
            }
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    let right = |name| Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        name,
                        verb: verb.clone(),
                    };
                    // An empty list of names means all names.
                    match rule.resource_names.as_deref() {
                        None | Some([]) => drop(self.resources.insert(right(None))),
                        Some(names) => self.resources.extend(names.iter().cloned().map(Some).map(right)),
                    }
                }
            }
        }
    }

    /// The union with other rights.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.resources.extend(other.resources.iter().cloned());
        self.paths.extend(other.paths.iter().cloned());
        self
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.paths.is_empty()
    }

    /// Whether the set has this right.
    pub fn contains_right(&self, right: &Right) -> bool {
        let of_any_name = || Right { name: None, ..right.clone() };
        self.resources.contains(right) || self.resources.contains(&of_any_name())
    }

    /// The wanted rights that this set lacks. A client may only grant rights that it has.
    pub fn lacking(&self, wanted: &Self) -> Vec<String> {
        let resources = wanted.resources.iter().filter(|right| !self.contains_right(right));
        let paths = wanted.paths.difference(&self.paths);
        let resources = resources.map(|right| {
            let name = right.name.as_deref().unwrap_or("any");
            format!("{} {}.{} ({name})", right.verb, right.resource, right.group)
        });
        resources.chain(paths.map(|(path, verb)| format!("{verb} {path}"))).collect()
    }

    /// The rules for these rights: few, and always in the same order.
    pub fn rules(&self) -> Vec<PolicyRule> {
        type Names = BTreeSet<String>;
        // Group names by resource and verb, then verbs by resource and names, then resources with equal verbs and names.
        let mut names: BTreeMap<(&str, &str, &str), Names> = BTreeMap::new();
        for right in &self.resources {
            let of_any_name = Right { name: None, ..right.clone() };
            if right.name.is_some() && self.resources.contains(&of_any_name) {
                continue;
            }
            names.entry((&right.group, &right.resource, &right.verb)).or_default().extend(right.name.clone());
        }
        let mut verbs: BTreeMap<(&str, Names, &str), Names> = BTreeMap::new();
        for ((group, resource, verb), names) in names {
            verbs.entry((group, names, resource)).or_default().insert(verb.to_owned());
        }
        let mut resources: BTreeMap<(&str, Names, Names), Names> = BTreeMap::new();
        for ((group, names, resource), verbs) in verbs {
            resources.entry((group, names, verbs)).or_default().insert(resource.to_owned());
        }
        let of_resources = resources.into_iter().map(|((group, names, verbs), resources)| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(resources.into_iter().collect()),
            resource_names: (!names.is_empty()).then(|| names.into_iter().collect()),
            verbs: in_order(verbs),
            ..PolicyRule::default()
        });
        let of_paths = self.paths.iter().map(|(path, verb)| PolicyRule {
            non_resource_urls: Some(vec![path.clone()]),
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        });
        of_resources.chain(of_paths).collect()
    }
}

fn in_order(verbs: BTreeSet<String>) -> Vec<String> {
    let mut verbs: Vec<String> = verbs.into_iter().collect();
    verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb));
    verbs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{allow, allow_named};

    fn named(names: &[&str], verbs: &[&str]) -> PolicyRule {
        allow_named("", &["secrets"], names.iter().map(|&name| name.to_owned()).collect(), verbs)
    }

    #[test]
    fn rights_that_are_missing_cannot_be_granted() {
        let everything = allow("", &["secrets", "pods"], &["get", "list"]);
        for (held, wanted, expected) in [
            (vec![everything.clone()], allow("", &["pods"], &["get"]), vec![]),
            (vec![everything.clone()], allow("apps", &["pods"], &["get"]), vec!["get pods.apps (any)"]),
            (vec![everything.clone()], allow("", &["pods"], &["watch"]), vec!["watch pods. (any)"]),
            (vec![everything.clone()], allow("", &["pods/log"], &["get"]), vec!["get pods/log. (any)"]),
            // All names cover one name; not the other way round.
            (vec![everything], named(&["a"], &["get"]), vec![]),
            (vec![named(&["a"], &["get"])], allow("", &["secrets"], &["get"]), vec!["get secrets. (any)"]),
            (vec![named(&["a", "b"], &["get"])], named(&["b"], &["get"]), vec![]),
            (vec![named(&["a"], &["get"])], named(&["a", "b"], &["get"]), vec!["get secrets. (b)"]),
            // Two rules may cover one together.
            (vec![named(&["a"], &["get"]), named(&["b"], &["get"])], named(&["a", "b"], &["get"]), vec![]),
        ] {
            assert_eq!(Rights::of(&held).lacking(&Rights::of([&wanted])), expected, "{held:?}");
        }
    }

    #[test]
    fn paths_are_granted_like_resources() {
        let metrics = PolicyRule {
            non_resource_urls: Some(vec!["/metrics".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        let wanted = Rights::of([&metrics]);
        assert_eq!(Rights::default().lacking(&wanted), ["get /metrics"]);
        assert_eq!(wanted.lacking(&wanted), Vec::<String>::new());
        assert_eq!(wanted.rules(), [metrics]);
    }

    #[test]
    fn rules_are_joined_and_mean_the_same() {
        let written = [
            allow("", &["pods"], &["watch", "get"]),
            allow("", &["nodes"], &["get", "watch"]),
            named(&["a"], &["patch"]),
            named(&["b"], &["patch"]),
            // Contained in the next one.
            named(&["a"], &["get"]),
            allow("", &["secrets"], &["get"]),
        ];
        let rules = Rights::of(&written).rules();
        assert_eq!(
            rules,
            [
                allow("", &["secrets"], &["get"]),
                allow("", &["nodes", "pods"], &["get", "watch"]),
                named(&["a", "b"], &["patch"]),
            ]
        );
        assert_eq!(Rights::of(&rules).lacking(&Rights::of(&written)), Vec::<String>::new());
        assert_eq!(Rights::of(&written).lacking(&Rights::of(&rules)), Vec::<String>::new());
    }
}
