#!/usr/bin/env bash
# Puts a QEMU that can be a client of vfio-user (10.1 or later), with the libraries it needs, and Debian's generic kernel into a folder of
# their own, with nvme-cli, for the tests that borrow a drive for a guest. Nothing is installed. Prints the folder. Some 150 MB to fetch and 250 MB on disk, once.
set -euo pipefail

name=guest-2
dir="${XDG_CACHE_HOME:-$HOME/.cache}/wherry-test/$name"
if [ -e "$dir" ]; then
	echo "$dir"
	exit
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1 || [ ! -e "$keys" ]; then
	echo "guest-tools: apt-get, dpkg-deb and $keys are needed (Debian's debian-archive-keyring)" >&2
	exit 1
fi
if [ "$(dpkg --print-architecture)" != amd64 ]; then
	echo "guest-tools: the guest is amd64's, and this machine is not" >&2
	exit 1
fi
part="$dir.$$" # the name that counts is given to what is complete
log=$(mktemp)
trap 'rm -rf "$part" "$log"' EXIT
mkdir -p "$part"/apt/lists/partial "$part"/apt/archives/partial "$part"/qemu "$part"/kernel
touch "$part"/apt/status # of no machine: so all that QEMU needs comes along
for suite in trixie trixie-backports; do
	echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian $suite main"
done >"$part"/apt/sources.list
options=(-qq -o Acquire::Retries=3 -o Acquire::Languages=none -o "Dir::Etc::SourceList=$part/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
	-o "Dir::State::Lists=$part/apt/lists" -o "Dir::State::status=$part/apt/status" -o "Dir::Cache=$part/apt" -o "Dir::Cache::archives=$part/apt/archives"
	-o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Architecture=amd64 -o APT::Architectures=amd64)
apt() { timeout 600 apt-get "${options[@]}" "$@"; }

fetch() {
	apt update && apt install -y --no-install-recommends --download-only -t trixie-backports qemu-system-x86 busybox-static nvme-cli &&
		kernel=$(apt-cache "${options[@]}" depends linux-image-amd64/trixie | awk '$1 == "Depends:" { print $2; exit }') && [ -n "$kernel" ] &&
		(cd "$part/apt/archives" && apt download "$kernel")
}
unpack() {
	local deb
	for deb in "$part"/apt/archives/*.deb; do
		case "$deb" in
		*/linux-image-*)
			dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$part"/kernel --wildcards './boot/vmlinuz-*' './*/modules.builtin' \
				'./*/kernel/drivers/nvme/*' './*/kernel/drivers/block/nbd.ko*' './*/kernel/fs/ext4/*' './*/kernel/fs/jbd2/*' './*/kernel/fs/mbcache.ko*' './*/kernel/crypto/*' \
				'./*/kernel/lib/*' './*/kernel/block/*' './*/kernel/fs/configfs/*' './*/kernel/arch/x86/crypto/*' \
				'./*/kernel/drivers/net/virtio_net.ko*' './*/kernel/drivers/net/net_failover.ko*' './*/kernel/net/core/failover.ko*' ;;
		*) dpkg-deb -x "$deb" "$part"/qemu ;;
		esac || return 1 # set -e does not hold where the caller asks how it went
	done
}
echo "guest-tools: fetching QEMU and a kernel into $dir" >&2
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
echo "guest-tools: could not fetch qemu-system-x86 of trixie-backports and linux-image-amd64 of trixie" >&2
exit 1
