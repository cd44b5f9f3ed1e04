# make without a target prints this file's targets.

GO         ?= go
TAGS       ?= invariants
# A package's tests take seconds; the limit is for a machine with other things to do.
TIMEOUT    ?= 20m
PARALLEL   ?= 2
BENCH      ?= .
# Packages with goroutines or shared memory; those that exist are run with the race detector.
RACE       ?= $(addprefix ./,$(addsuffix /...,$(wildcard fabric cluster inject rpc node client control dataset invoke demo/live bench)))
FUZZ_SECONDS ?= 60
SIM_SECONDS  ?= 600

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build test tools vet unit race outside peers ioforward bench bench-peers profile soak generate

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/wherry, without cgo
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/wherry ./cmd/wherry

test: tools vet unit race outside peers ioforward ## the gate: everything a change must pass (what CI runs)
	@echo "make test: all passed"

tools: ## install what the tests run besides Go, or say what is missing
	@scripts/test-tools.sh

vet: ## fail if a file is not gofmt's; go vet, with and without the invariants tag
	@bad=$$(find . -name '*.go' -not -path '*/testdata/*' -not -path './bin/*' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$bad" ]; then echo "not formatted; run gofmt -w:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags $(TAGS) ./...

unit: ## all tests, with invariants checked
	$(GO) test -pgo=off -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) ./...

race: ## the concurrent packages' tests under the race detector
	CGO_ENABLED=1 $(GO) test -pgo=off -race -short -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) $(RACE)

outside: ## build and run a program outside this module that uses the library
	@scripts/outside-module.sh

peers: ## vet and test bench/peers, a module of its own, with a short run of everybody
	@bench/peers/install-ucx.sh
	@cd bench/peers && GOWORK=off CGO_ENABLED=0 $(GO) build -o /dev/null . || \
		{ echo "bench/peers does not build; if its go.mod is out of date: cd bench/peers && go mod tidy" >&2; exit 1; }
	cd bench/peers && GOWORK=off $(GO) vet -tags $(TAGS) ./...
	cd bench/peers && GOWORK=off $(GO) test -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) ./...

ioforward: ## vet and test examples/ioforward, a module of its own, with FUSE mounts where they can be
	@cd examples/ioforward && GOWORK=off CGO_ENABLED=0 $(GO) build -o /dev/null . || \
		{ echo "examples/ioforward does not build; if its go.mod is out of date: cd examples/ioforward && go mod tidy" >&2; exit 1; }
	cd examples/ioforward && GOWORK=off $(GO) vet -tags $(TAGS) ./...
	cd examples/ioforward && GOWORK=off $(GO) test -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) ./...
	cd examples/ioforward && GOWORK=off CGO_ENABLED=1 $(GO) test -race -short -tags $(TAGS) -timeout $(TIMEOUT) ./remote

profile: ## renew cmd/wherry/default.pgo, which the compiler is guided by, from the benchmarks
	@scripts/profile.sh

bench: ## benchmarks; BENCH=regexp picks
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m ./...

bench-peers: ## wherry beside gRPC, Connect, net/rpc, NATS and UCX; PEERS='flags', as --json --svg FILE
	@bench/peers/install-ucx.sh
	@cd bench/peers && GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -o ../../bin/bench-peers .
	@bin/bench-peers $(PEERS)

soak: ## each fuzz target for FUZZ_SECONDS (60), then simulate with new seeds for SIM_SECONDS (600); 0 leaves either out
	FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=$(SIM_SECONDS) scripts/soak.sh
	MODULE=bench/peers PACKAGES= FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=0 scripts/soak.sh
	MODULE=examples/ioforward PACKAGES= FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=0 scripts/soak.sh

generate: ## rebuild what is made by go generate, .wfn images among it
	$(GO) generate ./...
