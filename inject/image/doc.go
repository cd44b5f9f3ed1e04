// Package image reads and writes function images: a function that travels, in
// one file, name.wfn.
//
// # Model
//
// An image is a manifest (what the function is called, what it takes and
// gives, which windows and limits it wishes for) and one entry
// for each form of its code: a wasm module for any machine, LLVM bitcode or a
// relocatable ELF object for one target triple. Its identity is a SHA-256 of
// the manifest and all entries, and stands in the file's header; names are
// labels only. Signatures stand behind the content and sign the identity, so
// signing an image does not change what it is.
//
// docs/image.md has the byte layout.
//
// # Ownership
//
// An Image never changes. Parse and Build copy what they are given; accessors
// return copies, except Entry.Code, which is shared and must not be written.
//
// # Errors
//
// Every error of Parse wraps one of the Err sentinels and says which byte,
// field or entry is at fault. Parse accepts exactly the bytes that Encode
// makes: for each content there is one encoding, hence one identity.
package image
