//! An explicit-state model checker: visits every reachable state, and finds the shortest trace to a violated invariant, and
//! states from which fair steps do not lead to an end.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// A model: states, and steps between them.
pub trait Model {
    type State: Clone + Eq + Hash;
    type Action: Debug;

    fn start(&self) -> Self::State;

    /// All steps from a state, in an order that depends only on the state.
    fn steps(&self, state: &Self::State) -> Vec<Step<Self::State, Self::Action>>;

    /// Whether the state is an end: everything that should happen has happened.
    fn is_end(&self, state: &Self::State) -> bool;
}

/// A step of a model.
#[derive(Debug)]
pub struct Step<S, A> {
    pub action: A,
    /// Whether it happens eventually. Faults and actions of people may never happen.
    pub is_fair: bool,
    /// The next state, or the invariant that the step violates.
    pub next: Result<S, &'static str>,
}

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    pub states: usize,
    pub steps: usize,
    pub verdict: Verdict,
}

#[derive(Debug)]
#[expect(dead_code, reason = "the trace to a dead end is printed")]
pub enum Verdict {
    Holds,
    Violated {
        invariant: &'static str,
        trace: Vec<String>,
    },
    /// A state from which fair steps do not lead to an end.
    DeadEnd {
        trace: Vec<String>,
    },
}

/// How each state was first reached: from which one, by which of its steps.
type Parents = Vec<(usize, usize)>;

/// Searches breadth first, so that the trace it finds is a shortest one.
pub fn search<M: Model>(model: &M) -> SearchResult {
    let start = model.start();
    let mut numbers: HashMap<_, _, BuildHasherDefault<QuickHasher>> = HashMap::default();
    numbers.insert(start.clone(), 0_usize);
    let mut parents: Parents = vec![(0, 0)];
    // For each state, those that lead to it by a fair step.
    let mut fair: Vec<Vec<u32>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut steps = 0;
    let mut waiting = VecDeque::from([start]);
    let mut number = 0;
    while let Some(state) = waiting.pop_front() {
        if model.is_end(&state) {
            ends.push(number);
        }
        for (place, step) in model.steps(&state).into_iter().enumerate() {
            steps += 1;
            let next = match step.next {
                Ok(next) => next,
                Err(invariant) => {
                    let mut trace = trace_to(model, &parents, number);
                    trace.push(format!("{:?}", step.action));
                    let verdict = Verdict::Violated { invariant, trace };
                    return SearchResult { states: parents.len(), steps, verdict };
                }
            };
            let known = *numbers.entry(next).or_insert_with_key(|next| {
                parents.push((number, place));
                fair.push(Vec::new());
                waiting.push_back(next.clone());
                parents.len() - 1
            });
            if step.is_fair {
                fair[known].push(u32::try_from(number).expect("fewer states than u32::MAX"));
            }
        }
        number += 1;
    }
    let verdict = first_dead_end(&fair, ends)
        .map_or(Verdict::Holds, |number| Verdict::DeadEnd { trace: trace_to(model, &parents, number) });
    SearchResult { states: parents.len(), steps, verdict }
}

/// Follows fair steps backwards from the ends. A state that is not reached is a dead end.
fn first_dead_end(fair: &[Vec<u32>], ends: Vec<usize>) -> Option<usize> {
    let mut reaches_end = vec![false; fair.len()];
    let mut waiting = ends;
    while let Some(number) = waiting.pop() {
        if !std::mem::replace(&mut reaches_end[number], true) {
            waiting.extend(fair[number].iter().map(|before| *before as usize));
        }
    }
    reaches_end.iter().position(|reaches_end| !reaches_end)
}

/// The actions that lead to a state. States are not stored, so the steps are repeated.
fn trace_to<M: Model>(model: &M, parents: &Parents, mut number: usize) -> Vec<String> {
    let mut places = Vec::new();
    while number != 0 {
        let (before, place) = parents[number];
        places.push(place);
        number = before;
    }
    let mut state = model.start();
    let mut trace = Vec::new();
    for place in places.into_iter().rev() {
        let step = model.steps(&state).swap_remove(place);
        trace.push(format!("{:?}", step.action));
        state = step.next.expect("the step was taken before");
    }
    trace
}

/// A fast hasher for states, which are many small numbers. The default one protects from crafted keys, which a model does
/// not have.
#[derive(Debug, Default)]
struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        // The map uses the upper and the lower bits.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}
