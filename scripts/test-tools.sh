#!/usr/bin/env bash
# Makes sure that what the tests run besides Go is installed. Installs Debian
# packages as root, or with CI=true through sudo; elsewhere it prints the line to
# run and fails if a tool is really missing. As root it also makes /dev/fuse.
# test-tools.sh modules fetches Go's modules only, which everything else begins with.
set -euo pipefail

# tool:package pairs.
wanted=(clang:clang wasm-ld:lld ip:iproute2 gcc:gcc git:git fusermount3:fuse3 fio:fio nbdkit:nbdkit qemu-aarch64:qemu-user nbdcopy:libnbd-bin qemu-img:qemu-utils sqlite3:sqlite3 redis-check-rdb:redis-tools xz:xz-utils mkfs.ext4:e2fsprogs)
# libc6-dev has no tool of its own; cgo, hence the race detector, needs its headers.
headers=libc6-dev
# Nor have the newest and the oldest LLVM that compile bitcode: 55 MB together, some ten seconds; nor what programs with remote memory use.
libraries=(libllvm22 libllvm19 libjemalloc2 python3-numpy)

# The Pythons of the tests, which look for them there: one with Numba, for sdk/python (60 MB to fetch, 300 MB on disk), and one with
# pyarrow and DuckDB, which read what wherry writes, and Polars, which bench load is compared with (130 and 440 MB). Some twenty seconds each, once. A folder whose packages change gets another name.
python_with() {
	local venv="${XDG_CACHE_HOME:-$HOME/.cache}/wherry-test/$1" part log
	shift
	[ -e "$venv" ] && return
	part="$venv.$$" # the name that counts is given to what is complete
	log=$(mktemp)
	echo "test-tools: installing $* into $venv"
	if python3 -m venv "$part" >"$log" 2>&1 &&
		timeout 600 "$part/bin/python" -m pip -q --disable-pip-version-check --retries 5 install "$@" </dev/null >>"$log" 2>&1 &&
		mv -T "$part" "$venv"; then
		rm -f "$log"
		return
	fi
	cat "$log" >&2
	rm -rf "$part" "$log"
	echo "test-tools: could not install $* into $venv by python3 -m venv and pip" >&2
	return 1
}
pythons() {
	python_with python-numba-0.68.1 numba==0.68.1 llvmlite==0.50.0 &&
		python_with python-tables-1 pyarrow==26.0.1 duckdb==2.0.0 polars==2.1.0
}

# A QEMU that is a client of vfio-user, and a kernel, in a folder of their own: 150 MB to fetch, 190 on disk, some fifteen seconds, once. The guest is amd64's.
guest() {
	[ "$(uname -m)" = x86_64 ] || return 0
	"$(dirname "$0")/folder-tools.sh" guest >/dev/null
}

# libLLVM for arm64 in a folder of its own: 50 MB to fetch, 220 on disk, once. The demo on unlike processors compiles bitcode with it under QEMU.
arm64() {
	[ "$(uname -m)" = x86_64 ] || return 0
	"$(dirname "$0")/folder-tools.sh" arm64 >/dev/null
}

# What the modules need is fetched here, where a proxy that fails for once is asked again; if it goes on failing, the
# first command that needs something says so.
for module in . bench/peers bench/memory examples/ioforward; do
	for pause in 5 20 0; do
		if (cd "$(dirname "$0")/../$module" && GOWORK=off go list -deps -test ./... </dev/null >/dev/null 2>&1); then
			break
		fi
		sleep "$pause"
	done
done
[ "${1-}" != modules ] || exit 0

missing=()
for pair in "${wanted[@]}"; do
	command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
done
if command -v dpkg >/dev/null 2>&1; then
	for package in "$headers" "${libraries[@]}"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
	done
fi
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3 python3-venv)
# The demo's graph is compared with apt-cache, which needs the archive's lists.
lists=/var/lib/apt/lists
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && ! ls "$lists"/*_Packages* >/dev/null 2>&1; then
	echo "test-tools: fetching the archive's package lists"
	timeout 300 apt-get -qq -o Acquire::Retries=3 update </dev/null >/dev/null ||
		echo "test-tools: could not fetch them; the comparison with apt-cache will say that it skips" >&2
fi

# have_fuse opens the device, as who mounts does.
have_fuse() { [ -c /dev/fuse ] && : <>/dev/fuse; }

# make_fuse makes the device that examples/ioforward mounts by, or says on standard error why it cannot.
make_fuse() {
	local minor why
	why=$(modprobe fuse 2>&1) || true # it may be built in
	minor=$(awk '$2 == "fuse" { print $1 }' /proc/misc)
	if [ -z "$minor" ]; then
		echo "this kernel has no FUSE, and modprobe fuse does not help: $why" >&2
		return 1
	fi
	[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 "$minor"
	have_fuse
}
if [ "$(id -u)" -eq 0 ] && ! (have_fuse) 2>/dev/null && ! why=$( (make_fuse) 2>&1); then
	echo "test-tools: no /dev/fuse that can be opened (${why:-it is no device}); tests that mount will say that they skip" >&2
fi
if [ ${#missing[@]} -eq 0 ]; then
	pythons
	guest
	arm64
	exit
fi

install="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
as=()
if ! command -v apt-get >/dev/null 2>&1; then
	echo "test-tools: not found: ${missing[*]} (Debian's names); install them and run again" >&2
	exit 1
elif [ "$(id -u)" -ne 0 ]; then
	if [ "${CI:-}" = true ] && command -v sudo >/dev/null 2>&1; then
		as=(sudo -n)
	else
		echo "test-tools: not found: ${missing[*]}; run as root: $install" >&2
		exit 1
	fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"; }
echo "test-tools: installing ${missing[*]}"
# An archive that is being renewed, or somebody else's apt, is in the way for a moment.
for pause in 10 30 0; do
	if { apt update && apt install -y --no-install-recommends "${missing[@]}"; } </dev/null >>"$log" 2>&1; then
		pythons
		guest
		arm64
		exit
	fi
	sleep "$pause"
done
cat "$log" >&2
echo "test-tools: could not install ${missing[*]}; run as root: $install" >&2
exit 1
