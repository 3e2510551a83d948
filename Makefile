# The index of commands. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help setup demo test features lint bench cluster image generate

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Installs what tests and demo need and cargo does not (root, Debian 12)
	@scripts/setup

# With an example among them, cargo builds what the tests need too, and nothing twice.
demo: setup ## Shows policies, a rollback and the report on a machine of namespaces, in seconds
	@cargo build --workspace --bin knmstate --bin demo --example apply_state
	@"$${CARGO_TARGET_DIR:-target}/debug/demo"

test: setup ## Runs every test on real parts and prints a summary
	@scripts/test

features: setup ## Tries every example and writes docs/features.md from what was seen
	@scripts/features

lint: setup ## Formatting, scripts, clippy, documentation, dependencies, generated files
	@scripts/lint

bench: setup ## Measures, and prints figures to compare within one run
	@cargo bench --quiet --package bench

cluster: setup ## A cluster to play with until Ctrl-C (ARGS="--kube-nodes 2")
	@cargo run --quiet --package rig --bin cluster -- $(ARGS)

image: ## Builds the container image, target/image/knmstate.tar
	@cargo run --quiet --package xtask -- image

generate: ## Writes deploy/ anew from the code
	@cargo run --quiet --package knmstate -- crds --output deploy/crds
	@cargo run --quiet --package knmstate -- manifests --output deploy/cluster
	@cargo run --quiet --package knmstate-delivery
