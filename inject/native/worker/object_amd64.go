package worker

import _ "embed"

// Arch is this processor as triples call it.
const Arch = "x86_64"

//go:embed runtime/runtime.x86_64.o
var object []byte

//go:embed runtime/nursery.x86_64.o
var nurseryObject []byte
