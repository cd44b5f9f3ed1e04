#!/usr/bin/env bash
# Long runs: every fuzz target for a while, then the simulator and soak tests again
# and again with new seeds.
#
#   FUZZ_SECONDS   seconds for each fuzz target (default 60; 0 leaves fuzzing out)
#   SIM_SECONDS    seconds for the tests named *Sim* or *Soak* (default 600; 0 leaves them out)
#   PACKAGES       what to look at (default ./...)
set -euo pipefail

cd "$(dirname "$0")/.."
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
	while [ -n "$sims" ] && [ "$SECONDS" -lt "$end" ] && [ ${#failed[@]} -eq 0 ]; do
		for package in $sims; do
			# Simulations that know -soak take new seeds for so long; the others run as they do every day.
			new_seeds=()
			if grep -qs 'flag.Duration("soak"' "$(go list -f '{{.Dir}}' "$package")"/*_test.go; then
				new_seeds=(-soak=5s)
			fi
			go test "${tags[@]}" -count=1 -timeout 30m -run '^Test.*(Sim|Soak)' "$package" "${new_seeds[@]}" </dev/null ||
				failed+=("simulation of $package, round $rounds (the seed is above)")
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
