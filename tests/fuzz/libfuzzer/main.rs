//! The fuzz targets under libFuzzer. KNMSTATE_FUZZ_TARGET names the target; `scripts/fuzz` sets it.

#![no_main]

use std::sync::LazyLock;

use fuzz_targets::{Random, TARGETS, Target, mutate, seeds};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use serde_json::Value;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("KNMSTATE_FUZZ_TARGET").expect("KNMSTATE_FUZZ_TARGET names a target");
    *TARGETS.iter().find(|(name, _)| *name == wanted).expect("KNMSTATE_FUZZ_TARGET is a target")
});

static SEEDS: LazyLock<Vec<Value>> = LazyLock::new(|| seeds(TARGET.0).expect("the examples are readable"));

fuzz_target!(|bytes: &[u8]| (TARGET.1)(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random::new(seed.into());
    // Now and then bytes, for what is no JSON.
    if random.below(20) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let known = serde_json::from_slice(&data[..size]).ok();
    let document = known.unwrap_or_else(|| SEEDS[random.below(SEEDS.len())].clone());
    let mutation = mutate(&document, &SEEDS, &mut random).to_string();
    if mutation.len() > max_size {
        return fuzzer_mutate(data, size, max_size);
    }
    data[..mutation.len()].copy_from_slice(mutation.as_bytes());
    mutation.len()
});
