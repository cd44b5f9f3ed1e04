// Package wasmcode reads WebAssembly binaries strictly and rewrites them so
// that a host can run them next to its own work: in bounded slices, with a
// heap that it sizes, and without stores into memory that is read-only.
//
// # Model
//
// Decode checks a binary section by section and instruction by instruction
// (MVP, sign extension, saturating conversion, bulk memory, multi-value,
// reference types, SIMD, atomics, tail calls). Every failure is an *Error that
// names the section, the function and the byte offset. Decode checks structure: every
// index, count and immediate is in range, and blocks nest. Whether operands
// have the right types is left to the engine that compiles the result; no
// rewrite below turns ill-typed code into well-typed code.
//
// Module.Instrument writes the module anew:
//
//   - A 64-bit global holds fuel. Function entries and loop heads take from it what
//     the code behind them costs in instructions, and long code does so on its way; below zero, the imported function __tick is
//     called and its result is the new fuel.
//   - memory.size and memory.grow act on two globals (pages now, pages at most) and never on
//     the real memory, which the host sizes once.
//   - memory.copy, memory.fill and memory.init become calls of added functions that
//     work in chunks and take fuel for each; table instructions take fuel in advance.
//   - With Options.CheckStores, whatever writes memory first compares the end of the range it
//     writes with a global, and calls the imported function __ro_trap with the address if it lies beyond.
//   - memory.atomic.notify, as no guest can wait, only checks its address.
//   - Short messages of two imports (Rules.Mailed, MailedTo) are copied to a mailbox in memory, which the host
//     empties when it is entered next, at the latest when the function returns; one import (Rules.Windows) is answered from globals.
//   - Mutable globals are exported (Module.Variables), so that the host can put them back between runs.
//   - Only the exports that the host asked for are kept besides; the start function becomes an export, so
//     that the host decides when it runs. Custom sections are dropped; the function
//     names are written anew, with the indices of the original.
//
// # Ownership
//
// A Module refers to the bytes given to Decode, which must not change while it
// is in use. Instrument may be called from several goroutines.
package wasmcode
