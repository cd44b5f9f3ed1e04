// Package sdk holds what people write functions with, so that the wherry
// program can build them without a checkout: the C headers (c/wherry.h, c/wherry_std.h).
// README.md shows how to write, build and run a function.
package sdk

import _ "embed"

//go:embed c/wherry.h
var header string

//go:embed c/wherry_std.h
var std string

// StdName is what functions include besides that want memory, text, sorting or mathematics as a C library has them, and Std its text.
const StdName = "wherry_std.h"

// Std is the part of the guest SDK in C that stands where a C library would.
func Std() string { return std }

// HeaderName is what functions include: #include "wherry.h".
const HeaderName = "wherry.h"

// Header is the guest SDK in C, all of it.
func Header() string { return header }
