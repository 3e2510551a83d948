# The index of commands. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help setup demo unit smoke test features lint bench fuzz cluster image generate release

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Installs everything that cargo does not (root, Debian 12)
	@scripts/setup lint test

demo: ## Shows policies, a rollback and the report on a node made of namespaces
	@scripts/demo

unit: ## Runs the tests of every crate but the rig: no root, no set-up
	@scripts/unit

smoke: ## Runs one example per topic, a rollout, a rollback and an installation, in about 3 minutes
	@scripts/smoke

test: setup ## Runs every test on real parts and prints a summary
	@scripts/test

features: setup ## Tests every example and writes docs/features.md from the results
	@scripts/features

lint: ## Checks formatting, words, scripts, clippy, documentation, dependencies, generated files
	@scripts/setup lint
	@scripts/lint

bench: setup ## Runs benchmarks; their figures are comparable within one run
	@cargo bench --quiet --package bench

fuzz: ## Runs the fuzz targets for SECONDS each (default: 60)
	@scripts/fuzz $(or $(SECONDS),60)

cluster: setup ## Runs a cluster to try things in, until Ctrl-C (ARGS="--kube-nodes 2")
	@cargo run --quiet --package rig --bin cluster -- $(ARGS)

image: ## Builds the container image, target/image/knmstate.tar
	@cargo run --quiet --package xtask -- image

generate: ## Writes deploy/crds and deploy/chart from the code
	@cargo run --quiet --package knmstate -- crds --output deploy/crds
	@cargo run --quiet --package knmstate-delivery -- chart --output deploy

release: ## Writes the assets of a release into target/release-assets
	@scripts/release
