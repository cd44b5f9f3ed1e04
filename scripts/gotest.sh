#!/usr/bin/env bash
# Runs go test: scripts/gotest.sh FLAG… -- PACKAGE…. A test that fails beside others is run again by itself, three times, and all three must pass:
# so a machine that was busy for a moment does not keep a good change out, and what is broken fails as before. Nothing is forgiven where there was a
# data race, a panic or a time limit, where a package failed outside its tests, or where more than three tests failed. What was
# forgiven is said, and stands in bin/unsure until the next run of the gate: find out why.
set -uo pipefail

go=${GO:-go}
root=$(cd "$(dirname "$0")/.." && pwd)
flags=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
[ $# -gt 1 ] || { echo "usage: gotest.sh FLAG… -- PACKAGE…" >&2; exit 2; }
shift

out=$(mktemp) failed=$(mktemp)
trap 'rm -f "$out" "$failed"' EXIT
"$go" test "${flags[@]}" "$@" 2>&1 | tee "$out"
rc=${PIPESTATUS[0]}
[ "$rc" -ne 0 ] || exit 0

if grep -qE 'DATA RACE|panic: |fatal error: |SIGSEGV|\[(build|setup) failed\]' "$out"; then
	exit "$rc"
fi
# A package's failed tests come before its own line.
awk '/^--- FAIL: / { tests = tests sep $3; sep = "|"; n++ }
	/^FAIL\t/ { if (tests == "") bad = 1; print $2, tests; tests = sep = "" }
	END { exit bad || n == 0 || n > 3 }' "$out" >"$failed" || exit "$rc"

while read -r package tests; do
	echo "gotest.sh: $tests of $package failed beside other tests; three times by itself:"
	"$go" test "${flags[@]}" -count=3 -run "^($tests)\$" "$package" </dev/null || exit "$rc"
	mkdir -p "$root/bin"
	echo "$tests of $package failed once, and passed three times by itself: find out why" | tee -a "$root/bin/unsure"
done <"$failed"
