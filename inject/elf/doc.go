// Package elf checks relocatable ELF objects of x86_64, aarch64 and riscv64 and
// gives them their addresses. It handles bytes only: it maps nothing, runs nothing
// and works on any machine for any other.
//
// # Model
//
//	o, err := elf.Parse(bytes, elf.Rules{Arch: "x86_64", Entry: "wherry_main", Imports: []string{"wherry_reply"}})
//	img, err := o.Place(base, func(name string) (uint64, bool) { … })
//
// An Image has three segments, one after the other, each at a multiple of
// SegmentBytes: code, read-only data (with the object's GOT), and data that the
// function may write to, whose zeroed part follows the image's bytes. Nothing is
// both writable and executable.
//
// # What is refused
//
// Whatever the loader of an operating system would run or look up on its own:
// constructors, thread-local storage, indirect functions, undefined symbols that
// are not among Rules.Imports, weak undefined symbols, common symbols, relocations
// that need a fixed address or that this package does not know. Everything is
// checked against its bounds before it is used, and every relocation against its reach.
// The headers are bounded before debug/elf reads them: it copies a name for each of
// its uses and inflates compressed sections, so a small object could exhaust memory.
//
// # Errors
//
// *Error says what is refused, where, and what to do about it.
//
// # Ownership
//
// An Object refers to the bytes given to Parse; an Image owns its own. Neither
// changes, so any goroutine may use them.
package elf
