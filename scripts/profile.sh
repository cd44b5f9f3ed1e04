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
# Mostly shared memory: what spends its time in wherry's own code, not in the kernel. Three
# times: with the samples of one run it is chance what the compiler inlines.
for _ in 1 2 3; do
    measure inject --transport shm --rounds 10000000
    measure verbs --transport shm
    measure verbs --transport tcp
    measure chase --transport shm --servers 4 --depth 64 --rounds 4000
    measure chase --transport tcp --servers 4 --depth 64 --rounds 10000
    for transport in shm tcp; do
        measure rpc --transport "$transport" --inflight 1
        measure rpc --transport "$transport" --inflight 64
        measure rpc --transport "$transport" --callers 16
    done
done

# Whoever waits for an answer polls, and that would be most of the profile, though the benchmarks
# are about what happens when something comes: that counts more often.
go tool pprof -proto -focus 'Runtime..receive|Function..Do' "$work"/profiles/*.pprof >"$work/inject" 2>/dev/null
go tool pprof -proto -focus 'wherry/rpc' "$work"/profiles/*.pprof >"$work/rpc" 2>/dev/null
go tool pprof -proto "$work"/profiles/*.pprof "$work"/{inject,inject,inject,inject,inject,inject,rpc} >"$work/merged" 2>/dev/null
mv "$work/merged" "$out"
echo "profile: $(stat -c %s "$out") bytes in $out; build again to use it"
