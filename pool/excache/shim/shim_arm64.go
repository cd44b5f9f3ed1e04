package shim

import _ "embed"

//go:embed shim.aarch64.so
var library []byte
