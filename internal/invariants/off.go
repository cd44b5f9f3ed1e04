//go:build !invariants

// Package invariants switches the checks that are too dear for production:
// built with -tags invariants, as every test is, both sides of a boundary are
// checked, and a broken one panics.
package invariants

// Enabled is a constant, so that checks cost nothing where it is false.
const Enabled = false
