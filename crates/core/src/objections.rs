//! Objections to a policy: a value that one of its nodes lacks, or a conflict with another policy on a node.
//!
//! Admission checks them, and so does the controller, for policies that were stored while admission was not available;
//! the messages are the same.

use std::collections::BTreeMap;

use knmstate_api::{Mode, NodeNetworkConfigurationPolicySpec, State};

use crate::{
    conflicts::{Conflict, Subjects, conflict, could_conflict},
    selection::selects,
    templates::{duplicate_address, is_same_everywhere, render},
};

/// A policy to compare with others.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub name: &'a str,
    pub spec: &'a NodeNetworkConfigurationPolicySpec,
}

/// The facts of a node by which policies select and are rendered.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

/// Why `candidate` is not valid together with the `others` on these nodes; `None` if it is.
///
/// A policy in Plan mode changes nothing and so has no conflicts: an admin can plan first and then resolve them.
pub fn objection(
    candidate: &Candidate<'_>,
    others: &[Candidate<'_>],
    nodes: &[NodeFacts<'_>],
) -> Option<String> {
    let desired = candidate.spec.desired_state.as_ref().filter(|desired| !desired.is_empty())?;
    let selected: Vec<&NodeFacts<'_>> =
        nodes.iter().filter(|node| selects(candidate.spec, node.labels)).collect();
    let own = if is_same_everywhere(candidate.spec) {
        Rendered::Once(desired)
    } else {
        let mut by_node = BTreeMap::new();
        for node in &selected {
            match render(candidate.spec, node.name, node.labels) {
                Ok(state) => by_node.extend(state.map(|state| (node.name.to_owned(), state))),
                Err(error) => return Some(error.to_string()),
            }
        }
        if let Some(duplicate) = duplicate_address(candidate.spec, &by_node) {
            return Some(duplicate.to_string());
        }
        Rendered::ByNode(by_node)
    };
    if candidate.spec.mode == Mode::Plan {
        return None;
    }
    let subjects = Subjects::of(&desired.0);
    others
        .iter()
        .filter(|other| other.name != candidate.name && other.spec.mode != Mode::Plan)
        .find_map(|other| conflict_with(&own, (desired, &subjects), other, &selected))
}

/// A desired state, rendered for the nodes that its policy selects.
enum Rendered<'a> {
    Once(&'a State),
    ByNode(BTreeMap<String, State>),
}

impl Rendered<'_> {
    fn on(&self, node: &str) -> Option<&State> {
        match self {
            Self::Once(state) => Some(state),
            Self::ByNode(by_node) => by_node.get(node),
        }
    }
}

fn conflict_with(
    own: &Rendered<'_>,
    (template, subjects): (&State, &Subjects),
    other: &Candidate<'_>,
    selected: &[&NodeFacts<'_>],
) -> Option<String> {
    let desired = other.spec.desired_state.as_ref()?;
    let others = Subjects::of(&desired.0);
    if !subjects.meet(&others) {
        return None;
    }
    // Templates that cannot conflict whatever the values need not be rendered for every node.
    if subjects.are_named() && others.are_named() && !could_conflict(template, desired) {
        return None;
    }
    let common = selected.iter().filter(|node| selects(other.spec, node.labels));
    let mut in_conflict: Vec<(&str, Conflict)> = Vec::new();
    if let (Rendered::Once(own), true) = (own, is_same_everywhere(other.spec)) {
        let conflict = conflict(own, desired)?;
        in_conflict.extend(common.map(|node| (node.name, conflict.clone())));
    } else {
        // A value that the other policy lacks for a node is an objection to that policy only.
        in_conflict.extend(common.filter_map(|node| {
            let there = render(other.spec, node.name, node.labels).ok()??;
            Some((node.name, conflict(own.on(node.name)?, &there)?))
        }));
    }
    let (node, conflict) = in_conflict.first()?;
    let more = match in_conflict.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some(format!(
        "conflicts with policy {:?} on node {node:?}{more}: {conflict}; change one of them, or select different nodes",
        other.name
    ))
}

#[cfg(test)]
mod tests;
