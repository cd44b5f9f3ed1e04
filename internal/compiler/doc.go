// Package compiler runs compilers as processes that can be killed: what a compiler does to bad input, it does to itself.
//
// # Model
//
// A Pool keeps compiler processes (cmd/wherry-llvm is one) and hands each request to one of them, one at a time:
//
//	pool := compiler.NewPool(compiler.Config{Command: []string{"wherry-llvm"}})
//	defer pool.Close()
//	object, err := pool.Compile(ctx, compiler.Job{Principal: "ada", Signer: key, Request: request})
//
// A compiler says who it is (Hello), then answers requests, on a socket that it finds as descriptor 3 (protocol.go; Serve is its side).
// It ends when the socket does, in the middle of a request too, so none outlives its owner.
//
// A process is replaced after a crash, a request that took longer than the deadline or whose caller has given up, 256 requests,
// when it has grown beyond its memory, when it computes without a request (its last principal is charged for that), and when the signer changes: no code that one signer answers for meets what the code of
// another left behind. A spare waits, so no request pays for the start of a replacement.
//
// # Who waits
//
// A bounded number of requests waits, of each principal and in all. When a process is free, the principal goes first
// whose compiles took least processor time (queue.go).
//
// # Errors
//
// A *RefusedError is the input's fault, and final. ErrDeadline, ErrCrashed, ErrQueueFull and ErrClosed are not: they say which limit,
// and who can raise it.
package compiler
