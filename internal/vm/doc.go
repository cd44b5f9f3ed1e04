// Package vm runs a small Linux guest in QEMU, for tests and benchmarks that need one: Debian's generic kernel, BusyBox and a few modules in an initramfs that is made here, no
// disk, no network, TCG. scripts/folder-tools.sh guest fetches QEMU and the kernel into a folder of their own.
//
// Commands for the guest's shell go over a serial line, those for QEMU over QMP. Nothing is timed: each wait has the caller's deadline.
package vm
