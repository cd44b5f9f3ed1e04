// Package worker is the process in which native functions run: what it does on its side, and what it shares with
// the node.
//
// # Model
//
// A *nursery* makes workers. It begins as this program, started once more: Main confines it, and then executes in its place the few KiB
// of runtime/nursery.c, so that it holds nothing, neither of the node's nor of Go's. For each worker that the node asks for it forks, and the child
// maps what came with the request: it is the worker. Its runtime is runtime/runtime.c, some 3 KiB of code: it takes over the faults, closes all descriptors, forbids
// itself all system calls but four (internal/jail), and only then runs a function, again and again, each time that the node asks. A worker is
// the node's own child, so the node waits for it; it dies with the node.
//
// # Memory
//
// Everything lies at fixed addresses (Base and what follows it), apart from each other by unmapped pages, so that a program is relocated
// once for all its workers. Code is shared by all of them and sealed; nothing is writable and executable in any process. The
// page, payload, statics, stack and scratch are shared with the node, so that what a host call names lies in the node's reach and a Get lands
// where it is wanted.
//
// # Taking turns
//
// One word of the page says whose turn it is, the node's or the worker's; who waits sleeps on it by futex. Each
// writes to the page in its turn only. A function can write there whenever it likes: the node copies out once what it reads, and then checks it.
package worker
