package shim

import _ "embed"

//go:embed shim.x86_64.so
var library []byte
