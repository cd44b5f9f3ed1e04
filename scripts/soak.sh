#!/usr/bin/env bash
# Long runs: every fuzz target for a while, then the simulator and soak tests again
# and again with new seeds.
#
#   FUZZ_SECONDS   seconds for each fuzz target (default 60; 0 leaves fuzzing out)
#   SIM_SECONDS    seconds for the tests named *Sim* or *Soak* (default 600; 0 leaves them out)
#                  each of which must say that it took its round's seed, or the soak fails
#   PACKAGES       what to look at (default ./...)
#   MODULE         the folder of another module, whose go.mod counts then (default: this one)
set -euo pipefail

cd "$(dirname "$0")/../${MODULE:-.}"
[ -z "${MODULE:-}" ] || export GOWORK=off
fuzz_seconds=${FUZZ_SECONDS:-60}
sim_seconds=${SIM_SECONDS:-600}
read -ra packages <<<"${PACKAGES:-./...}"
tags=(-tags invariants)

# discover prints "package test" for each test whose name matches $1.
discover() {
	go test "${tags[@]}" -list "$1" "${packages[@]}" |
		awk -v want="$1" '$1 == "ok" { for (i = 0; i < n; i++) print $2, name[i]; n = 0; next }
			$1 == "?" { n = 0; next }
			NF == 1 && $1 ~ want { name[n++] = $1 }'
}

# new_seed is one that no round before had.
new_seed() { date +%s%N; }

# unseeded prints the tests in the log that passed and did not say that they began
# with seed $1: "seeds $1 to …" where a package has a flag of its own, and what
# rapid says of its first check where that has it from -rapid.seed.
unseeded() {
	awk -v base="$1" '
		$1 == "===" { split($3, name, "/"); test = name[1] }
		index($0, "seeds " base " to ") || index($0, "[rapid] test #1 start (seed " base ")") { took[test] = 1 }
		/^--- PASS: / { if (!($3 in took)) print $3 }' "$log"
}

# failure prints the log without what rapid said of checks that passed.
failure() {
	awk '/\[rapid\] test #[0-9]+ start/ { held = ""; holding = 1 }
		/\[rapid\] test #[0-9]+ (OK|invalid)/ { held = ""; holding = 0; next }
		holding { held = held $0 "\n"; next }
		{ print }
		END { printf "%s", held }' "$log" >&2
}

# simulate runs a package's simulations once, with seeds from $2 on, which it
# prints. It fails if one of them fails, or did not use these seeds.
simulate() {
	local package=$1 base=$2 dir flags without
	dir=$(go list -f '{{.Dir}}' "$package")
	if grep -qs '= seeds.Flags(' "$dir"/*_test.go; then
		flags=("-base=$base")
	elif grep -qs 'pgregory.net/rapid' "$dir"/*_test.go; then
		flags=("-rapid.seed=$base" -rapid.v)
	else
		echo "soak: the simulations of $package take no seed: each round would be the same" >&2
		return 1
	fi
	if ! go test "${tags[@]}" -v -count=1 -timeout 30m -run '^Test.*(Sim|Soak)' "$package" "${flags[@]}" </dev/null >"$log" 2>&1; then
		failure
		return 1
	fi
	without=$(unseeded "$base")
	if [ -n "$without" ]; then
		echo "soak: $package was run with ${flags[0]}, and these did not take the seed:" $without >&2
		return 1
	fi
	echo "soak: $package: $(grep -o 'seeds [0-9]* to [0-9]*' "$log" | sort -k4 -n | tail -1 | grep . || echo "seed $base")"
}

failed=()
if [ "$fuzz_seconds" -gt 0 ]; then
	targets=$(discover '^Fuzz')
	echo "soak: $(grep -c . <<<"$targets" || true) fuzz targets, $fuzz_seconds s each"
	while read -r package target; do
		[ -n "$package" ] || continue
		echo "soak: $package $target"
		go test "${tags[@]}" -run '^$' -fuzz "^$target\$" -fuzzminimizetime 1x -fuzztime "${fuzz_seconds}s" "$package" </dev/null ||
			failed+=("$package $target")
	done <<<"$targets"
fi

if [ "$sim_seconds" -gt 0 ]; then
	sims=$(discover '^Test.*(Sim|Soak)' | cut -d' ' -f1 | sort -u)
	end=$((SECONDS + sim_seconds))
	rounds=0
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	while [ -n "$sims" ] && { [ "$rounds" -eq 0 ] || [ "$SECONDS" -lt "$end" ]; } && [ ${#failed[@]} -eq 0 ]; do
		base=$(new_seed)
		for package in $sims; do
			simulate "$package" "$base" || failed+=("$package, round $rounds, seeds from $base")
		done
		rounds=$((rounds + 1))
	done
	echo "soak: $rounds rounds of simulation"
fi

if [ ${#failed[@]} -gt 0 ]; then
	printf 'soak: failed: %s\n' "${failed[@]}" >&2
	echo "soak: what a fuzz target found lies in its package's testdata/fuzz; commit it with the fix" >&2
	exit 1
fi
echo "soak: nothing found"
