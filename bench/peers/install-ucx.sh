#!/usr/bin/env bash
# Installs Debian's ucx_perftest for the benchmark of peers: as root, or with CI=true
# through sudo. Elsewhere it prints the line to run. The benchmark runs without it too, and
# says in its rows that it is missing; so this never fails.
set -uo pipefail

command -v ucx_perftest >/dev/null 2>&1 && exit 0

install="apt-get update && apt-get install -y --no-install-recommends ucx-utils"
as=()
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-ucx: ucx_perftest is not installed; on Debian, as root: $install" >&2
	exit 0
elif [ "$(id -u)" -ne 0 ]; then
	if [ "${CI:-}" = true ] && command -v sudo >/dev/null 2>&1; then
		as=(sudo -n)
	else
		echo "install-ucx: ucx_perftest is not installed; run as root: $install" >&2
		exit 0
	fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { timeout 300 "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"; }
echo "install-ucx: installing ucx-utils" >&2
if ! { apt install -y --no-install-recommends ucx-utils || { apt update && apt install -y --no-install-recommends ucx-utils; }; } </dev/null >"$log" 2>&1; then
	tail -5 "$log" >&2
	echo "install-ucx: could not install it; run as root: $install" >&2
fi
exit 0
