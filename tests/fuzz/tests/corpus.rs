//! All targets on the committed corpus, and on mutations of the examples.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use fuzz_targets::{Random, TARGETS, files_below, mutate, seeds};

/// How many mutations each target gets. `make fuzz` runs more, guided by coverage.
const MUTATIONS: u64 = 2_000;

fn survives(name: &str, target: fn(&[u8]), bytes: &[u8], origin: &str) {
    let end = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    assert!(end.is_ok(), "target {name} fails on {origin}: {}", String::from_utf8_lossy(bytes));
}

#[test]
fn every_target_survives_its_corpus() {
    for (name, target) in TARGETS {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = files_below(&corpus).expect("each target has a corpus");
        assert!(!files.is_empty(), "{} is empty", corpus.display());
        for file in files {
            survives(name, target, &fs::read(&file).expect("readable"), &file.display().to_string());
        }
    }
}

#[test]
fn every_target_survives_mutations_of_the_examples() {
    for (name, target) in TARGETS {
        let seeds = seeds(name).expect("the examples are readable");
        assert!(seeds.len() > 80, "only {} examples were found", seeds.len());
        for seed in 0..MUTATIONS {
            let mut random = Random::new(seed);
            let mutation = mutate(&seeds[random.below(seeds.len())], &seeds, &mut random);
            survives(name, target, mutation.to_string().as_bytes(), &format!("seed {seed}"));
        }
    }
}
