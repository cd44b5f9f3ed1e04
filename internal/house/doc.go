// Package house holds no code, only tests: the rules of this repository that a
// machine can check, so that no reviewer has to.
//
// # What is checked
//
//   - which package may import which, and which module (imports_test.go; every
//     forbidden import stands there with its reason);
//   - doc comments, lengths of files and functions, formatting, init functions,
//     package-level state, unsafe and assembly, environment variables (style_test.go);
//   - that the tree builds without cgo for every architecture we promise (build_test.go);
//   - that every module has its line in docs/dependencies.md (modules_test.go);
//   - links between documents, leftover markers, oversized files (files_test.go).
//
// # How
//
// The checks read source files with go/parser rather than asking the go command
// for packages, so that files for other platforms and build tags are seen too. A
// package that does not exist breaks no rule. Each check that judges source has a test of its own
// that feeds it an offender: a rule that never bites is worth nothing.
package house
