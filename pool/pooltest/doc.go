// Package pooltest has the pool's conformance tests: what remote memory must do over every transport of this tree, simulated wires among them, at one component and
// at several. TestOpenFAM names each of OpenFAM's regression test programs, and what of it runs here, or why nothing does.
package pooltest
