//! Walks through every state that a model can reach: finds the shortest way to a broken promise, and states from which
//! no fair way leads to the end.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// Something with states and steps between them.
pub trait Model {
    type State: Clone + Eq + Hash;
    type Action: Debug;

    fn start(&self) -> Self::State;

    /// Everything that can happen next, in an order that depends on the state alone.
    fn steps(&self, state: &Self::State) -> Vec<Step<Self::State, Self::Action>>;

    /// Whether everything that should happen has happened.
    fn is_over(&self, state: &Self::State) -> bool;
}

/// Something that can happen.
#[derive(Debug)]
pub struct Step<S, A> {
    pub action: A,
    /// Whether it happens sooner or later by itself. Faults and wishes of people do not.
    pub is_fair: bool,
    /// What follows, or the promise that it breaks.
    pub next: Result<S, &'static str>,
}

/// What a search has found.
#[derive(Debug)]
pub struct Found {
    pub states: usize,
    pub steps: usize,
    pub verdict: Verdict,
}

#[derive(Debug)]
#[expect(dead_code, reason = "the way to a dead end is read by people")]
pub enum Verdict {
    Holds,
    Broken {
        promise: &'static str,
        way: Vec<String>,
    },
    /// A state from which no fair way leads to the end.
    DeadEnd {
        way: Vec<String>,
    },
}

/// How each state was first reached: from which one, by which of its steps.
type Parents = Vec<(usize, usize)>;

/// Searches breadth first, so that what it finds is the shortest example.
pub fn search<M: Model>(model: &M) -> Found {
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
        if model.is_over(&state) {
            ends.push(number);
        }
        for (place, step) in model.steps(&state).into_iter().enumerate() {
            steps += 1;
            let next = match step.next {
                Ok(next) => next,
                Err(promise) => {
                    let mut way = way_to(model, &parents, number);
                    way.push(format!("{:?}", step.action));
                    return Found { states: parents.len(), steps, verdict: Verdict::Broken { promise, way } };
                }
            };
            let known = *numbers.entry(next).or_insert_with_key(|next| {
                parents.push((number, place));
                fair.push(Vec::new());
                waiting.push_back(next.clone());
                parents.len() - 1
            });
            if step.is_fair {
                fair[known].push(u32::try_from(number).expect("so many states fit into no memory"));
            }
        }
        number += 1;
    }
    let verdict = first_dead_end(&fair, ends)
        .map_or(Verdict::Holds, |number| Verdict::DeadEnd { way: way_to(model, &parents, number) });
    Found { states: parents.len(), steps, verdict }
}

/// Walks back from the ends along fair steps. What is not met on the way has no way out.
fn first_dead_end(fair: &[Vec<u32>], ends: Vec<usize>) -> Option<usize> {
    let mut leads_out = vec![false; fair.len()];
    let mut waiting = ends;
    while let Some(number) = waiting.pop() {
        if !std::mem::replace(&mut leads_out[number], true) {
            waiting.extend(fair[number].iter().map(|before| *before as usize));
        }
    }
    leads_out.iter().position(|leads_out| !leads_out)
}

/// The actions that lead to a state. States are not kept, so the way is walked again.
fn way_to<M: Model>(model: &M, parents: &Parents, mut number: usize) -> Vec<String> {
    let mut places = Vec::new();
    while number != 0 {
        let (before, place) = parents[number];
        places.push(place);
        number = before;
    }
    let mut state = model.start();
    let mut way = Vec::new();
    for place in places.into_iter().rev() {
        let step = model.steps(&state).swap_remove(place);
        way.push(format!("{:?}", step.action));
        state = step.next.expect("it was walked before");
    }
    way
}

/// States are many small numbers, and nobody chooses them to make the map slow.
#[derive(Debug, Default)]
struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        // The map looks at the upper and the lower bits.
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
