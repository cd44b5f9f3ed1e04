#!/usr/bin/env bash
# Renews cmd/wherry/default.pgo: CPU profiles of the benchmarks' processes, merged.
# `go build` and `go run` of the command use it by themselves. Worth doing after the
# hot paths have changed, on a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."

out=cmd/wherry/default.pgo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/profiles"

go build -pgo=off -o "$work/wherry" ./cmd/wherry
measure() {
    echo "profile: wherry bench $*"
    "$work/wherry" bench "$@" --cpuprofile "$work/profiles" --json >/dev/null
}
# Mostly shared memory: what spends its time in wherry's own code, not in the kernel.
for _ in 1 2; do
    measure inject --transport shm --rounds 2000000
    measure verbs --transport shm
done
measure chase --transport shm --servers 4 --depth 64
measure chase --transport tcp --servers 4 --depth 64

go tool pprof -proto "$work"/profiles/*.pprof >"$work/merged" 2>/dev/null
mv "$work/merged" "$out"
echo "profile: $(stat -c %s "$out") bytes in $out; build again to use it"
