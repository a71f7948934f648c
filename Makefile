# relay: build, test and show it. `make help` lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
export CGO_ENABLED := 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
TARGETS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
FUZZTIME ?= 10s

## build: make bin/relay
.PHONY: build
build:
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/relay ./cmd/relay

## engine: build llama.cpp once, into a cache outside the tree (minutes; then at once)
.PHONY: engine
engine:
	@.ci/tools
	@go run ./llama/build

## demo: three peers on this machine, one model, one of them killed (a second run takes seconds)
.PHONY: demo
demo: build engine
	@go run ./cmd/demo

## test: the gate: vet, staticcheck, all tests, the real engine and binary, the five targets
.PHONY: test
test: build engine lint
	go test -timeout 20m ./...
	@$(MAKE) --no-print-directory targets

## test-net: the tests in network namespaces alone: cuts, slow links, routers, clocks apart (Linux, as root)
.PHONY: test-net
test-net: engine
	go test -timeout 15m -count=1 -v -run '^TestNet' ./cmd/lab ./cmd/relay

## test-long: what takes long: ten minutes of peers that die and return under two hundred streams
.PHONY: test-long
test-long:
	go test -timeout 20m -count=1 -v -run '^TestChurn$$' ./cmd/relay -churn 10m

## lint: formatting, go vet and staticcheck
.PHONY: lint
lint:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt -w these: $$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...

## targets: compile for Linux and macOS on amd64 and arm64, and for Windows
.PHONY: targets
targets:
	@for t in $(TARGETS); do echo "build $$t"; \
	  GOOS=$${t%/*} GOARCH=$${t#*/} go build -o /dev/null ./cmd/relay || exit 1; done

## race: the tests of all but the programs under the race detector (needs gcc); those of engines in short
.PHONY: race
race:
	CGO_ENABLED=1 go test -race -timeout 20m ./p2p/... ./scheduler/... ./api/... ./store/...
	CGO_ENABLED=1 go test -race -timeout 20m -short ./llama/...

## fuzz: every fuzz test for FUZZTIME (10s)
.PHONY: fuzz
fuzz:
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "fuzz $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

## bench-path: figures of the whole path: joining, a hop, a pull, a peer that dies
.PHONY: bench-path
bench-path: build engine
	@go run ./cmd/bench

## bench-mesh: figures of the mesh: joining, convergence, idle traffic, memory, who is noticed how soon (Linux, as root; half an hour)
.PHONY: bench-mesh
bench-mesh: build engine
	@go run ./cmd/bench/mesh $(if $(ONLY),-only $(ONLY))

## bench-models: figures of models: adding, pulling against a raw stream, kubo and rsync, resuming, disk, memory (Linux; a quarter of an hour)
.PHONY: bench-models
bench-models: build
	@go run ./cmd/bench/models $(if $(ONLY),-only $(ONLY))

## bench-plan: figures of where models run: planning, who serves and leads again how soon, engines that share cores (Linux; ten minutes)
.PHONY: bench-plan
bench-plan: build engine
	@go run ./cmd/bench/plan $(if $(ONLY),-only $(ONLY))

## bench-shards: figures of models that run on several peers: tokens a second, what the tunnel costs, loading, planning again (Linux; eight minutes)
.PHONY: bench-shards
bench-shards: build engine
	@go run ./cmd/bench/shards $(if $(ONLY),-only $(ONLY))

## bench-v1: figures of the door, beside the engine itself and nginx: first bytes, events, a thousand streams, requests per core (Linux; five minutes)
.PHONY: bench-v1
bench-v1: build
	@go run ./cmd/bench/v1 $(if $(ONLY),-only $(ONLY))

## bench-unbroken: figures of streams whose peer dies, freezes, is cut off or drained (Linux, as root; ten minutes); N=5 for five of each
.PHONY: bench-unbroken
bench-unbroken: build engine
	@go run ./cmd/bench/unbroken $(if $(ONLY),-only $(ONLY)) $(if $(N),-n $(N))

## bench-routing: figures of who serves a request, and when: conversations, load, and batches beside (Linux; ten minutes)
.PHONY: bench-routing
bench-routing: build
	@go run ./cmd/bench/routing $(if $(ONLY),-only $(ONLY))

## bench: the Go benchmarks
.PHONY: bench
bench:
	go test -run '^$$' -bench . -benchtime 2s ./...

## vuln: known vulnerabilities (asks a database on the internet)
.PHONY: vuln
vuln:
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

## clean: remove what was built in the tree
.PHONY: clean
clean:
	rm -rf bin

## help: this list
.PHONY: help
help:
	@sed -nE 's|^## ([a-z0-9-]+): (.*)|\1\t\2|p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'
