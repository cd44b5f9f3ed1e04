package worker

import _ "embed"

// Arch is this processor as triples call it.
const Arch = "aarch64"

//go:embed runtime/runtime.aarch64.o
var object []byte

//go:embed runtime/nursery.aarch64.o
var nurseryObject []byte
