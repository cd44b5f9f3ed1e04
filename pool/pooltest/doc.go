// Package pooltest has the pool's conformance tests: what remote memory must do over every transport of this tree, simulated wires among them, at one component and
// at several.
package pooltest
