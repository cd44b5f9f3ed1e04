#!/usr/bin/env bash
# Checks that a program outside this repository can use the library: makes a module
# of its own in a temporary folder, points it at this checkout, builds and runs it.
# The program is examples/outside where that is there, else a small one from below.
set -euo pipefail

module=github.com/wherry-fabric/wherry
checkout=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if [ -d "$checkout/examples/outside" ]; then
	cp -R "$checkout/examples/outside/." "$dir/"
else
	cat >"$dir/main.go" <<'GO'
// A program that stores a key as bytes and reads it back.
package main

import (
	"fmt"
	"os"

	"github.com/wherry-fabric/wherry/fabric"
)

func main() {
	key := fabric.Key{Owner: 1, Slot: 2, Generation: 3, Size: 4096, Rights: fabric.RightRead}
	back, err := fabric.DecodeKey(key.Append(nil))
	if err != nil || back != key {
		fmt.Fprintln(os.Stderr, "a key did not survive its wire form:", back, err)
		os.Exit(1)
	}
	fmt.Println(back)
}
GO
fi

cd "$dir"
export GOWORK=off GOFLAGS="${GOFLAGS:+$GOFLAGS }-mod=mod"
rm -f go.sum
if [ ! -f go.mod ]; then
	version=$(cd "$checkout" && go list -m -f '{{.GoVersion}}')
	go mod init example.org/outside >/dev/null 2>&1
	go mod edit -go="$version"
fi
go mod edit -require="$module@v0.0.0" -replace="$module=$checkout"
# The same checksums as the checkout's: nothing to look up that it has not got.
cp "$checkout/go.sum" go.sum
go build -buildvcs=false -tags invariants -o program . # as the tests, which have compiled the library by now
# The library must not drag in what only the command needs.
heavy=$(go list -deps -f '{{with .Module}}{{.Path}}{{end}}' . | sort -u | grep -E '^(github.com/spf13/cobra|go.etcd.io/.*|google.golang.org/grpc)$' || true)
if [ -n "$heavy" ]; then
	echo "outside-module: a program that uses the library also builds: $heavy" >&2
	exit 1
fi
timeout 120 ./program </dev/null
if [ -d seams ]; then # an engine, a backing and a transport, with the suites that the library's own pass
	go vet -tags invariants ./...
	go test -vet=off -tags invariants -timeout 5m ./seams
fi
echo "outside-module: built and ran in a module of its own"
