#!/usr/bin/env bash
# Puts Debian's libLLVM for arm64, with the libraries it needs, into a folder of its own, for the tests that compile bitcode on an arm64 that QEMU emulates
# (qemu-aarch64 -L FOLDER). Nothing is installed. Prints the folder. Some 50 MB to fetch and 200 MB on disk, once.
set -euo pipefail

name=arm64-llvm22-1
dir="${XDG_CACHE_HOME:-$HOME/.cache}/wherry-test/$name"
if [ -e "$dir" ]; then
	echo "$dir"
	exit
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1 || [ ! -e "$keys" ]; then
	echo "arm64-tools: apt-get, dpkg-deb and $keys are needed (Debian's debian-archive-keyring)" >&2
	exit 1
fi
part="$dir.$$" # the name that counts is given to what is complete
log=$(mktemp)
trap 'rm -rf "$part" "$log"' EXIT
mkdir -p "$part"/apt/lists/partial "$part"/apt/archives/partial
touch "$part"/apt/status # of no machine: so all that libLLVM needs comes along
{
	echo "deb [arch=arm64 signed-by=$keys] http://deb.debian.org/debian bookworm main"
	echo "deb [arch=arm64 signed-by=$keys] http://deb.debian.org/debian-security bookworm-security main"
} >"$part"/apt/sources.list
options=(-qq -o Acquire::Retries=3 -o Acquire::Languages=none -o "Dir::Etc::SourceList=$part/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
	-o "Dir::State::Lists=$part/apt/lists" -o "Dir::State::status=$part/apt/status" -o "Dir::Cache=$part/apt" -o "Dir::Cache::archives=$part/apt/archives"
	-o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Architecture=arm64 -o APT::Architectures=arm64)
apt() { timeout 600 apt-get "${options[@]}" "$@"; }

fetch() { apt update && apt install -y --no-install-recommends --download-only libllvm22; }
unpack() {
	local deb
	for deb in "$part"/apt/archives/*.deb; do
		dpkg-deb -x "$deb" "$part" || return 1 # set -e does not hold where the caller asks how it went
	done
}
echo "arm64-tools: fetching libLLVM for arm64 into $dir" >&2
for pause in 5 20 0; do
	if fetch </dev/null >"$log" 2>&1 && unpack >>"$log" 2>&1; then
		rm -rf "$part"/apt
		mv -T "$part" "$dir" 2>/dev/null || [ -e "$dir" ] # another run was first
		echo "$dir"
		exit
	fi
	sleep "$pause"
done
cat "$log" >&2
echo "arm64-tools: could not fetch libllvm22 for arm64 of bookworm-security" >&2
exit 1
