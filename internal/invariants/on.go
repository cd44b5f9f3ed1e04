//go:build invariants

package invariants

// Enabled is a constant, so that checks cost nothing where it is false.
const Enabled = true
