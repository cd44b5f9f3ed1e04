#!/usr/bin/env bash
# folder-tools.sh arm64|guest puts Debian packages, with the libraries they need, into a folder of their own, and prints the folder. Nothing is installed.
#   arm64  libLLVM for arm64, for the tests that compile bitcode on an arm64 that QEMU emulates (qemu-aarch64 -L FOLDER): 50 MB to fetch, 200 MB on disk, once
#   guest  a QEMU that can be a client of vfio-user (10.1 or later), nvme-cli and Debian's generic kernel, for the tests that borrow a drive for a guest: 150 MB, 250 MB
set -euo pipefail

case "${1-}" in
arm64)
	name=arm64-llvm22-1 arch=arm64 what="libllvm22 for arm64 of bookworm-security"
	packages=(libllvm22)
	sources=("http://deb.debian.org/debian bookworm main" "http://deb.debian.org/debian-security bookworm-security main")
	into=.
	;;
guest)
	name=guest-2 arch=amd64 what="qemu-system-x86 of trixie-backports and linux-image-amd64 of trixie"
	packages=(-t trixie-backports qemu-system-x86 busybox-static nvme-cli)
	sources=("http://deb.debian.org/debian trixie main" "http://deb.debian.org/debian trixie-backports main")
	into=qemu
	;;
*)
	echo "usage: $0 arm64|guest" >&2
	exit 2
	;;
esac
dir="${XDG_CACHE_HOME:-$HOME/.cache}/wherry-test/$name"
if [ -e "$dir" ]; then
	echo "$dir"
	exit
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1 || [ ! -e "$keys" ]; then
	echo "folder-tools: apt-get, dpkg-deb and $keys are needed (Debian's debian-archive-keyring)" >&2
	exit 1
fi
if [ "$1" = guest ] && [ "$(dpkg --print-architecture)" != amd64 ]; then
	echo "folder-tools: the guest is amd64's, and this machine is not" >&2
	exit 1
fi
part="$dir.$$" # the name that counts is given to what is complete
log=$(mktemp)
trap 'rm -rf "$part" "$log"' EXIT
mkdir -p "$part"/apt/lists/partial "$part"/apt/archives/partial "$part/$into"
touch "$part"/apt/status # of no machine: so all that the packages need comes along
printf "deb [arch=$arch signed-by=$keys] %s\n" "${sources[@]}" >"$part"/apt/sources.list
options=(-qq -o Acquire::Retries=3 -o Acquire::Languages=none -o "Dir::Etc::SourceList=$part/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
	-o "Dir::State::Lists=$part/apt/lists" -o "Dir::State::status=$part/apt/status" -o "Dir::Cache=$part/apt" -o "Dir::Cache::archives=$part/apt/archives"
	-o Debug::NoLocking=1 -o APT::Sandbox::User= -o "APT::Architecture=$arch" -o "APT::Architectures=$arch")
apt() { timeout 600 apt-get "${options[@]}" "$@"; }

# The kernel is fetched by itself, without what its package wants besides.
kernel() {
	local image
	image=$(apt-cache "${options[@]}" depends linux-image-amd64/trixie | awk '$1 == "Depends:" { print $2; exit }') && [ -n "$image" ] &&
		(cd "$part/apt/archives" && apt download "$image")
}
fetch() { apt update && apt install -y --no-install-recommends --download-only "${packages[@]}" && { [ "$name" != guest-2 ] || kernel; }; }
unpack() {
	local deb
	for deb in "$part"/apt/archives/*.deb; do
		case "$deb" in
		*/linux-image-*)
			mkdir -p "$part"/kernel && dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$part"/kernel --wildcards './boot/vmlinuz-*' './*/modules.builtin' \
				'./*/kernel/drivers/nvme/*' './*/kernel/drivers/block/nbd.ko*' './*/kernel/fs/ext4/*' './*/kernel/fs/jbd2/*' './*/kernel/fs/mbcache.ko*' './*/kernel/crypto/*' \
				'./*/kernel/lib/*' './*/kernel/block/*' './*/kernel/fs/configfs/*' './*/kernel/arch/x86/crypto/*' \
				'./*/kernel/drivers/net/virtio_net.ko*' './*/kernel/drivers/net/net_failover.ko*' './*/kernel/net/core/failover.ko*' ;;
		*) dpkg-deb -x "$deb" "$part/$into" ;;
		esac || return 1 # set -e does not hold where the caller asks how it went
	done
}
echo "folder-tools: fetching $what into $dir" >&2
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
echo "folder-tools: could not fetch $what" >&2
exit 1
