// Package sdk holds what people write functions with, so that the wherry
// program can build them without a checkout: the C header (c/wherry.h).
// README.md shows how to write, build and run a function.
package sdk

import _ "embed"

//go:embed c/wherry.h
var header string

// HeaderName is what functions include: #include "wherry.h".
const HeaderName = "wherry.h"

// Header is the guest SDK in C, all of it.
func Header() string { return header }
