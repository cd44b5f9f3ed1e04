//go:build !(amd64 || arm64 || riscv64)

package worker

// Arch is empty: no worker runs on this processor.
const Arch = ""

var object, nurseryObject []byte
