#!/usr/bin/env bash
# Installs what the benchmark of peers runs of UCX: Debian's ucx_perftest, as root, or with CI=true
# through sudo (elsewhere it prints the line to run), and PyPI's newer one, for whoever runs this, into a folder
# of the checkout. The benchmark runs without them too, and says in its rows what is missing; so this never fails.
set -uo pipefail

debian() {
	command -v ucx_perftest >/dev/null 2>&1 && return
	local install="apt-get update && apt-get install -y --no-install-recommends ucx-utils" as=() log
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "install-ucx: ucx_perftest is not installed; on Debian, as root: $install" >&2
		return
	elif [ "$(id -u)" -ne 0 ]; then
		if [ "${CI:-}" = true ] && command -v sudo >/dev/null 2>&1; then
			as=(sudo -n)
		else
			echo "install-ucx: ucx_perftest is not installed; run as root: $install" >&2
			return
		fi
	fi
	log=$(mktemp)
	apt() { timeout 300 "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"; }
	echo "install-ucx: installing ucx-utils" >&2
	if ! { apt install -y --no-install-recommends ucx-utils || { apt update && apt install -y --no-install-recommends ucx-utils; }; } </dev/null >"$log" 2>&1; then
		tail -5 "$log" >&2
		echo "install-ucx: could not install it; run as root: $install" >&2
	fi
	rm -f "$log"
}

# The wheel has ucx_perftest and its libraries. Nothing of it is imported or linked.
wheel=libucx-cu12==1.22.0
hashes=(--hash=sha256:5cbbef0c140a0a158ae3486089af659b38822b2234cd3dc90ba40a5e6553402a # x86_64
	--hash=sha256:269aa884c3f83ced2ffb5f7704fb3a2da56d9402431222ddbe2901c1ae4fb227) # aarch64
built=$(dirname "$0")/../../bin
folder=$built/ucx-pypi

pypi() {
	local work
	[ "$(cat "$folder/wheel" 2>/dev/null)" = "$wheel" ] && return
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "install-ucx: no python3 with pip, which would fetch $wheel: the benchmark goes without it" >&2
		return
	fi
	mkdir -p "$built" && work=$(mktemp -d "$built/ucx-pypi.XXXXXX") || return
	echo "$wheel ${hashes[*]}" >"$work/requirements"
	echo "install-ucx: fetching $wheel (43 MB)" >&2
	if timeout 300 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$work/requirements" -d "$work" \
		</dev/null >"$work/log" 2>&1 && python3 -m zipfile -e "$work"/*.whl "$work/unpacked" && chmod +x "$work"/unpacked/libucx/bin/*; then
		echo "$wheel" >"$work/unpacked/wheel"
		rm -rf "$folder" && mv "$work/unpacked" "$folder"
	else
		tail -3 "$work/log" >&2
		echo "install-ucx: could not fetch $wheel: the benchmark goes without it" >&2
	fi
	rm -rf "$work"
}

debian
pypi
exit 0
