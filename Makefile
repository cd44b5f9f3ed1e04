# make without a target prints this file's targets.

GO         ?= go
TAGS       ?= invariants
# A package's tests take seconds; the limit is for a machine with other things to do.
TIMEOUT    ?= 20m
# go test; a test that fails is run again by itself, three times.
GOTEST      = GO=$(GO) $(CURDIR)/scripts/gotest.sh
# More than there are cores: many tests wait, for a node that is silent or for a process that starts.
PARALLEL   ?= 3
BENCH      ?= .
# As the command is released, and the same everywhere, so that each target finds in the cache what the one before built. Only
# the race detector needs cgo; each process that it watches would sleep a second at its end.
export CGO_ENABLED = 0
# The compiler and the linker collect garbage a quarter as often: a twelfth less of processor time, for a third more memory. What they make is the same, and so is its place in the cache.
export GOFLAGS := $(GOFLAGS) '-toolexec=env GOGC=400'
WATCHED     = CGO_ENABLED=1 GORACE="atexit_sleep_ms=50 $$GORACE"
# Test binaries without DWARF, which nobody reads: it is a third of the time of each of some 140 links.
LINK       ?= -ldflags=-w
# The packages that take longest, first, so that no core waits for one of them at the end.
LONGEST    ?= ./rpc/rpctest ./fabric/tcp ./cmd/wherry ./bench ./client ./node/devicetest
# Packages with goroutines or shared memory are run with the race detector, the longest first; pure ones among them, which start no goroutine, are not, nor is bench, which drives the
# others' code. A third of all packages would be compiled for cluster/etcd alone, which is etcd and what that needs: make soak runs it.
RACE       ?= ./client ./rpc/rpctest ./demo/live $(addprefix ./,$(addsuffix /...,$(wildcard internal/compiler internal/codecache fabric inject rpc cluster node control pool device)))
PURE       ?= /inject/(travel|image|abi|xrdma)(/|$$)|/rpc/exchange$$
RARELY     ?= /cluster/etcd$$
FUZZ_SECONDS ?= 60
SIM_SECONDS  ?= 600
DRIVE_KILLS  ?= 200
WINDOW_MIB   ?= 5120
FAULT_CALLS  ?= 10000

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build mixed test prepare tools vet unit race outside peers ioforward memory bench bench-peers bench-memory profile soak generate

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Released without symbol table and DWARF, a third of the file: traces of panics and profiles find their names without.
RELEASE     = $(GO) build -trimpath -ldflags='-s -w'

build: ## build bin/wherry, without cgo, and print its size
	$(RELEASE) -o bin/wherry ./cmd/wherry
	$(RELEASE) -o bin/wherry-llvm ./cmd/wherry-llvm
	@echo "binary_mb $$(($$(wc -c <bin/wherry) / 1000000))"

mixed: build ## build it for arm64 and riscv64 too, for wherry demo --mixed
	for arch in amd64 arm64 riscv64; do GOARCH=$$arch $(RELEASE) -o bin/wherry-$$arch ./cmd/wherry || exit 1; done
	GOARCH=arm64 $(GO) build -trimpath -o bin/wherry-llvm-arm64 ./cmd/wherry-llvm
	libraries=$$(scripts/folder-tools.sh arm64) && ln -sfn "$$libraries" bin/libraries-arm64 || echo "mixed: without libLLVM for arm64; no bitcode is compiled there"

test: prepare unit race outside peers ioforward memory ## the gate: everything a change must pass (what CI runs)
	@echo "make test: all passed"; if [ -s bin/unsure ]; then echo "but:"; cat bin/unsure; fi

# Tools are fetched while vet compiles: the one waits for the network, the other for processors. Modules both need.
prepare: ## tools and vet, side by side
	@rm -f bin/unsure
	@scripts/test-tools.sh modules
	@$(MAKE) --no-print-directory tools & tools=$$!; trap "kill $$tools" INT TERM; \
	$(MAKE) --no-print-directory vet; vetted=$$?; wait $$tools && exit $$vetted

tools: ## install what the tests run besides Go, or say what is missing
	@rm -f bin/unsure
	@scripts/test-tools.sh

vet: ## fail if a file is not gofmt's; go vet with the invariants tag, and without it where that differs
	@bad=$$(find . -name '*.go' -not -path '*/testdata/*' -not -path './bin/*' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$bad" ]; then echo "not formatted; run gofmt -w:"; echo "$$bad"; exit 1; fi
	$(GO) vet -pgo=off -tags $(TAGS) ./...
	$(GO) vet -pgo=off ./internal/invariants

# The house's tests come first and alone, for they build on all cores: beside them, processes that poll go slowly.
unit: ## all tests, with invariants checked
	$(GOTEST) -vet=off -pgo=off $(LINK) -tags $(TAGS) -timeout $(TIMEOUT) -- ./internal/house
	$(GOTEST) -vet=off -pgo=off $(LINK) -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) -- $(LONGEST) $$($(GO) list ./... | grep -v /internal/house$$)

race: ## the concurrent packages' tests under the race detector
	$(WATCHED) $(GOTEST) -vet=off -pgo=off $(LINK) -race -short -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) -- $$($(GO) list $(RACE) | grep -vE '$(PURE)|$(RARELY)')

outside: ## build and run a program outside this module that uses the library
	@scripts/outside-module.sh

peers: ## vet and test bench/peers, a module of its own, with a short run of everybody
	@bench/peers/install-ucx.sh
	@cd bench/peers && GOWORK=off $(GO) build -tags $(TAGS) -o /dev/null . || \
		{ echo "bench/peers does not build; if its go.mod is out of date: cd bench/peers && go mod tidy" >&2; exit 1; }
	cd bench/peers && GOWORK=off $(GO) vet -tags $(TAGS) ./...
	cd bench/peers && GOWORK=off $(GOTEST) -vet=off $(LINK) -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) -- ./...

ioforward: ## vet and test examples/ioforward, a module of its own, with FUSE mounts where they can be
	@cd examples/ioforward && GOWORK=off $(GO) build -tags $(TAGS) -o /dev/null . || \
		{ echo "examples/ioforward does not build; if its go.mod is out of date: cd examples/ioforward && go mod tidy" >&2; exit 1; }
	cd examples/ioforward && GOWORK=off $(GO) vet -tags $(TAGS) ./...
	cd examples/ioforward && GOWORK=off $(GOTEST) -vet=off $(LINK) -tags $(TAGS) -timeout $(TIMEOUT) -p $(PARALLEL) -- ./...
	cd examples/ioforward && GOWORK=off $(WATCHED) $(GOTEST) -vet=off $(LINK) -race -short -tags $(TAGS) -timeout $(TIMEOUT) -- ./remote

memory: ## vet and test bench/memory, a module of its own
	@cd bench/memory && GOWORK=off $(GO) build -tags $(TAGS) -o /dev/null . || \
		{ echo "bench/memory does not build; if its go.mod is out of date: cd bench/memory && go mod tidy" >&2; exit 1; }
	cd bench/memory && GOWORK=off $(GO) vet -tags $(TAGS) ./...
	cd bench/memory && GOWORK=off $(GOTEST) -vet=off -pgo=off $(LINK) -tags $(TAGS) -timeout $(TIMEOUT) -- ./...

profile: ## renew cmd/wherry/default.pgo, which the compiler is guided by, from the benchmarks
	@scripts/profile.sh

bench: ## benchmarks; BENCH=regexp picks
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m ./...

# With the release's profile, as wherry is built for its users; the other libraries' code is compiled with it too.
bench-peers: ## wherry beside gRPC, Connect, net/rpc, NATS and UCX; PEERS='flags', as --json --svg FILE
	@bench/peers/install-ucx.sh
	@cd bench/peers && GOWORK=off $(GO) build -pgo=../../cmd/wherry/default.pgo -trimpath -o ../../bin/bench-peers .
	@bin/bench-peers $(PEERS)

bench-memory: build ## programs with a quarter of their memory local: over wherry run, over swap; MEMORY='flags', as --json --sides shm,tcp,zram
	@cd bench/memory && GOWORK=off $(GO) build -trimpath -o ../../bin/bench-memory .
	@bin/bench-memory $(MEMORY)

soak: ## each fuzz target for FUZZ_SECONDS (60), simulate with new seeds for SIM_SECONDS (600), run cluster/etcd under the race detector, kill DRIVE_KILLS (200) borrowers of a drive while fio verifies it, and while guests write it, then fn test on a window of WINDOW_MIB (5120), then FAULT_CALLS (10000) calls to real nodes that are killed and cut off, as root; 0 leaves any out
	GOARCH=riscv64 $(GO) vet -pgo=off -tags $(TAGS) ./...
	FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=$(SIM_SECONDS) scripts/soak.sh
	MODULE=bench/peers PACKAGES= FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=0 scripts/soak.sh
	MODULE=examples/ioforward PACKAGES= FUZZ_SECONDS=$(FUZZ_SECONDS) SIM_SECONDS=0 scripts/soak.sh
	$(WATCHED) $(GO) test -vet=off -pgo=off -race -tags $(TAGS) -timeout $(TIMEOUT) $$($(GO) list ./... | grep -E '$(RARELY)')
	@[ $(DRIVE_KILLS) -eq 0 ] || $(GO) test -tags $(TAGS) -count=1 -timeout 30m -run '^Test(Fio|Guest)$$' ./node/devicetest -kills $(DRIVE_KILLS)
	@[ $(WINDOW_MIB) -eq 0 ] || $(GO) test -tags $(TAGS) -count=1 -timeout 90m -run '^TestLargeWindow$$' ./cmd/wherry -window-mib $(WINDOW_MIB)
	@[ $(FAULT_CALLS) -eq 0 ] || { $(GO) build -trimpath -o bin/wherry ./cmd/wherry && bin/wherry bench faults --calls $(FAULT_CALLS) --timeout 3h --json; }

generate: ## rebuild what is made by go generate, .wfn images among it
	$(GO) generate ./...
