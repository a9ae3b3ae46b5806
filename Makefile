# The one task runner: people and CI call the same targets.
#
#   make up ARGS="--listen 0.0.0.0:6443"     build, then run everything in one process
#   make release                             build target/release/freehold, with freehold.debug beside it for debuggers
#   make krew KREW_URL=https://...           the kubectl plugin's archive and krew manifest, in target/krew
#   make test CRDS=some/folder               all tests; real CRDs from that folder (default: from their Go modules)
#   make console                             build the web console, which the program embeds; the targets above do so
#   make test-long                          the fault tests and the fuzz targets at length, and Keycloak
#   make fuzz FUZZ=10                        each fuzz target for so many seconds (a minute)
#   make conformance ARGS="--suite api"      Kubernetes' own conformance tests against a project plane
#   make test-cluster                        pairs as containers of a real kubelet, with containerd (as root, on Linux)
#   make image                               an OCI image in target/image, with a list of what it consists of
#   make lint | fmt | bench | tools | clean

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
TOOLS       := $(CURDIR)/.tools
ARGS        ?=
FUZZ        ?= 60
CRDS        ?=
KREW_URL    ?= https://example.com

export PATH := $(TOOLS)/bin:$(HOME)/.cargo/bin:$(PATH)
export FREEHOLD_TEST_ETCD := $(TOOLS)/bin/etcd
# The same cases of property tests at each run; PROPTEST_RNG_SEED= and a number tries others.
export PROPTEST_RNG_SEED ?= 1
export FREEHOLD_CRDS := $(if $(CRDS),$(abspath $(CRDS)),$(TOOLS)/crds)

# A release is compiled by what is known of where the program spends its time (tools/profile): a third faster.
RELEASE := RUSTFLAGS="$${RUSTFLAGS:-} $$(tools/profile flags)" cargo build --release

.PHONY: up release krew console test-console image test test-long fuzz lint rooms fmt bench conformance differential tools test-tools build-tools clean

up: release
	./target/release/freehold up $(ARGS)

release: build-tools console
	$(RELEASE) -p freehold-cli
	tools/strip target/release/freehold

krew: release
	tools/krew target/release/freehold target/krew $(KREW_URL)

# Linked statically, so that the image needs no libraries: only the program's own crate is told, since a flag for all crates would
# change the names by which the profile knows functions.
image: build-tools console
	$(subst cargo build,cargo rustc,$(RELEASE)) -p freehold-cli --bin freehold -- -C target-feature=+crt-static
	tools/strip target/release/freehold
	tools/image target/release/freehold target/image

# The tests run the real binary, which is built with them, since a build of its own would compile all dependencies again, with
# other features; FREEHOLD_BIN tells them which one it is.
test: test-tools console
	@tools/get cel-spec versitygw
	@$(if $(CRDS),test -d "$(CRDS)" || { echo "CRDS=$(CRDS) is not a folder" >&2; exit 1; },tools/get crds)
	@tools/get clients
	cargo test --workspace --no-run
	FREEHOLD_BIN=$(CURDIR)/target/debug/freehold tools/tests $(ARGS)
	cargo test --quiet --workspace --doc

# The web console, into gateway/assets/console, which cargo embeds. A build without it serves a page that says so.
CONSOLE := gateway/assets/console/index.html
console: $(CONSOLE)

$(CONSOLE): $(shell find console/src console/public -type f) $(addprefix console/,index.html vite.config.ts package.json) \
            console/node_modules/.package-lock.json
	cd console && npm run --silent check && npm run --silent build

console/node_modules/.package-lock.json: console/package-lock.json
	@tools/get node
	cd console && npm ci --no-audit --no-fund --silent

# The console in Chromium, against the program of this build.
test-console: console
	@tools/get chromium
	cargo test --workspace --no-run
	cd console && FREEHOLD_BIN=$(CURDIR)/target/debug/freehold npm test --silent

# The fault tests at length: 1,000 rounds of each below the engine, and of kill -9 of the server in a storm of writes. What
# views tell, with and without hidden objects. 3,000 steps of the model of who may do what. Alerts of a real Prometheus on faults
# that are made. A real identity provider, Keycloak.
# And the fuzz targets.
test-long: tools fuzz console
	cargo build -p freehold-cli
	FREEHOLD_FAULT_ROUNDS=1000 cargo test -p freehold-apiserver-storage-embedded --test faults -- --nocapture $(ARGS)
	FREEHOLD_FAULT_ROUNDS=1000 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tests-integration storm_of_writes -- --nocapture $(ARGS)
	FREEHOLD_PAGING_ROUNDS=50 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tests-integration hidden_objects_leave_no_trace -- --nocapture $(ARGS)
	FREEHOLD_MODEL_STEPS=3000 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tests-integration model:: -- --nocapture $(ARGS)
	FREEHOLD_TEST_WORKFLOW_RUNS=1000000 cargo test -p freehold-workflow-store --test history -- \
	  --nocapture --test-threads=1 large $(ARGS)
	FREEHOLD_TENANCY_LONG=1 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tenancy-admission --test admission -- --nocapture --test-threads=1 $(ARGS)
	FREEHOLD_TENANCY_NAMESPACES=2000 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tenancy-controllers --test tenants figures -- --nocapture --test-threads=1 $(ARGS)
	@tools/get helm prometheus clients
	FREEHOLD_ALERTS_LONG=1 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tests-deploy faults:: -- --nocapture --test-threads=1 $(ARGS)
	FREEHOLD_CONSUMERS=1000 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  cargo test -p freehold-tests-conformance --test clients a_manager_of_go -- --nocapture $(ARGS)
	tools/get keycloak chromium
	cd console && FREEHOLD_CONSOLE_LONG=1 FREEHOLD_BIN=$(CURDIR)/target/debug/freehold npm test --silent
	FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  FREEHOLD_TEST_KEYCLOAK=1 \
	  cargo test -p freehold-tests-integration keycloak -- --nocapture $(ARGS)

# A project's pair as containers of a real kubelet: apply to Ready, another image under writes, removal. It takes root, and some
# minutes for building kubelet at first. The machine is left as it was (tools/node).
test-cluster: tools
	@tools/get kube-apiserver kube-controller-manager kube-scheduler kubelet containerd
	cargo build -p freehold-cli
	cargo test --no-run -p freehold-tests-deploy
	tools/image target/debug/freehold target/image-test
	FREEHOLD_TEST_IMAGE=$(CURDIR)/target/image-test/freehold.tar FREEHOLD_BIN=$(CURDIR)/target/debug/freehold \
	  tools/node cargo test --offline -p freehold-tests-deploy node:: -- --nocapture

# Each fuzz target for a minute, from another seed each time.
fuzz: build-tools
	FREEHOLD_FUZZ_SECONDS=$(FUZZ) cargo test -p freehold-tests-fuzz --test targets -- --nocapture $(ARGS)
	FREEHOLD_FUZZ_SECONDS=$(FUZZ) cargo test -p freehold-apiserver-server -p freehold-apiserver-registry \
	  -p freehold-apiserver-planes --lib -- \
	  --nocapture fuzz frames_break

# Continuous integration says another CLIPPY: the compilation of the tests, with Clippy as its compiler.
CLIPPY ?= cargo clippy --workspace --all-targets -- -D warnings
lint: build-tools
	@tools/get lints
	cargo fmt --all -- --check
	$(CLIPPY)
	cargo test -q -p freehold-tests-tidy
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo "lint: cargo-deny is not installed; the tidy tests checked its licences and bans"; fi

# Size, largest knot of imports and longest functions of each crate.
rooms:
	@cargo test -q -p freehold-tests-tidy --test rooms every_crate_is_measured -- --nocapture

fmt:
	cargo fmt --all

# Measures beside a kube-apiserver, and writes docs/benchmarks.md; ARGS="--only verbs,lists" measures some parts and only
# prints. docs/benchmarks.md says how the part with 100,000 planes is asked for.
bench: tools console
	@tools/get kube-apiserver chromium
	$(RELEASE) -p freehold-cli -p freehold-tests-bench
	FREEHOLD_BIN=$(CURDIR)/target/release/freehold ./target/release/freehold-tests-bench $(ARGS)
	$(if $(ARGS),,FREEHOLD_BIN=$(CURDIR)/target/release/freehold ./target/release/freehold-tests-bench-size --write)

# Runs the tests named in tests/conformance/suites, and writes tests/conformance/results.json; ARGS="--only ResourceQuota"
# runs some and only prints. Fails if a test fails that passed before. Then Freehold's controllers and kube-controller-manager are
# given the same objects, each in a project of its own, and what they make of them is compared.
conformance: tools $(TOOLS)/bin/e2e.test $(TOOLS)/bin/agnhost
	@tools/get kube-controller-manager sample-apiserver
	$(RELEASE) -p freehold-cli -p freehold-tests-conformance
	FREEHOLD_BIN=$(CURDIR)/target/release/freehold ./target/release/freehold-tests-conformance $(ARGS)
	$(if $(ARGS),,FREEHOLD_TEST_CONTROLLERS=1 FREEHOLD_BIN=$(CURDIR)/target/release/freehold cargo test -p freehold-tests-conformance --test controllers)

# Kubernetes' end-to-end tests and what runs them; built again when their version changes. This takes a quarter of an hour.
$(TOOLS)/bin/e2e.test: tests/conformance/go.mod
	cd tests/conformance && GOFLAGS=-buildvcs=false go build -o $(TOOLS)/bin/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	cd tests/conformance && GOFLAGS=-buildvcs=false go test -c -o $@ \
	  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" \
	  k8s.io/kubernetes/test/e2e

# The program of the tests' Pods: webhook servers among much else.
$(TOOLS)/bin/agnhost: tests/conformance/go.mod
	cd tests/conformance && GOFLAGS=-buildvcs=false go build -o $@ k8s.io/kubernetes/test/images/agnhost

# Records anew what kube-apiserver answers to the requests of tests/differential.
differential: build-tools
	@tools/get etcd kube-apiserver kube-controller-manager
	cargo build -p freehold-tests-differential
	tests/differential/record.sh $(CURDIR)/target/debug/freehold-tests-differential

# What a build needs.
build-tools:
	@tools/get rust cc

# What the tests need besides.
tools: build-tools
	@tools/get kubectl etcd

# What the tests of aggregation need, a kube-apiserver in front and somebody else's extension server behind, and those of a
# cluster that is not ours: its controllers. Building them takes some minutes, once. Helm is for the chart, Prometheus for its
# alerts, PostgreSQL for history.
test-tools: tools
	@tools/get kube-apiserver kube-controller-manager sample-apiserver helm flux moto postgresql prometheus

clean:
	rm -rf target .tools
