// Package sdk holds what people write functions with, so that the wherry
// program can build them without a checkout: the C headers (c/wherry.h and those that build on it).
// README.md shows how to write, build and run a function.
package sdk

import _ "embed"

//go:embed c/wherry.h
var header string

//go:embed c/wherry_std.h
var std string

//go:embed c/wherry_asm.h
var asm string

//go:embed c/wherry_team.h
var team string

//go:embed c/wherry_columns.h
var columns string

// Parts are what functions include besides, by name: what reads columns, what a C library would give them, what writes functions, and what has elements work together.
func Parts() map[string]string {
	return map[string]string{"wherry_columns.h": columns, "wherry_std.h": std, "wherry_asm.h": asm, "wherry_team.h": team}
}

// HeaderName is what functions include: #include "wherry.h".
const HeaderName = "wherry.h"

// Header is the guest SDK in C, all of it.
func Header() string { return header }
