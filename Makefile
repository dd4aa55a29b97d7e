# Targets of Outbox Relay. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
FUZZTIME ?= 30s
ARGS ?=

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

build: ## build static programs into build/
	CGO_ENABLED=0 go build -trimpath -o build/ ./cmd/...

demo: ## show the relay at work; ARGS="..." are its flags
	@echo "compiling the demo: about a minute the first time, seconds later" >&2
	@go run ./cmd/outbox-demo $(ARGS)

test: ## all tests; what is missing on this machine is fetched, or named as NOT RUN
	go run ./test/suite $(ARGS)

test-race: ## all tests with the race detector
	go run ./test/suite -race $(ARGS)

test-pg: ## tests without servers and with PostgreSQL 14 to 18
	go run ./test/suite -tier pg $(ARGS)

test-kafka: ## all tests but those that need Docker
	go run ./test/suite -tier kafka $(ARGS)

test-docker: ## the smoke tests of PostgreSQL and Kafka in containers
	OUTBOX_RELAY_TEST_CONTAINERS=1 go test -count=1 -tags containers -run TestContainer ./test/harness

e2e: ## the built program against real PostgreSQL and Kafka
	go run ./test/suite $(ARGS) ./test/e2e/...

chaos: ## the fault campaign on real servers: about a quarter of an hour, on a machine with nothing else to do
	go run ./test/suite $(ARGS) ./test/chaos/...

fuzz: ## each fuzz target for FUZZTIME (30s)
	@set -euo pipefail; for pkg in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | sed 's/^func //'); do \
			echo "fuzzing $$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

lint: ## vet, staticcheck, gofmt, and the rules of test/arch
	go vet ./...
	go vet -tags containers ./test/harness/...
	go tool staticcheck ./...
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go test ./test/arch

bench: ## benchmarks; ARGS="..." are their flags; PEER=debezium PEER_JARS=dir measures that one too
	go run ./test/bench $(if $(PEER),--peer '$(PEER)' --peer-jars '$(PEER_JARS)') $(ARGS)

mutate: ## break each law on purpose; the tests must notice (a few minutes); ARGS="-only I5"
	go run ./test/mutate $(ARGS)

golden: ## write the golden files anew; explain the difference in the commit
	go run ./test/captures
	UPDATE_GOLDEN=1 go test ./config/...
	go test ./checkpoint ./decode ./migrations -rewrite

ci: ## what the build server runs
	./.ci/run

.PHONY: help build demo test test-race test-pg test-kafka test-docker e2e chaos fuzz lint bench mutate golden ci
