package worker

import _ "embed"

// Arch is this processor as triples call it.
const Arch = "riscv64"

//go:embed runtime/runtime.riscv64.o
var object []byte

//go:embed runtime/nursery.riscv64.o
var nurseryObject []byte
