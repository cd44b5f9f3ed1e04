// Package travel is the protocol by which functions travel: one element's side
// of it, pure. Events go in (a message arrived, a peer was lost, a run ended,
// time passed), messages and effects come out. There is no clock, socket or
// goroutine inside, so a simulator runs exactly what production runs.
//
// # Model
//
// An invocation is a tree of branches that its origin starts (Start) and that
// ends at the origin (Effects.Complete). A branch is at one element at a time:
// it runs there, and then ends (Finish) or moves on (Forward); it can start
// others (Fork) and send parts of its result ahead (Part). The origin completes
// when every announced branch has ended and every part is in; any failure fails
// the whole, so a result is never a partial one.
//
// The origin has an endpoint to every element where its branches can be. When
// it loses one, it fails the futures that may have had a branch there. What is
// lost between two other elements, the sender reports.
//
// Most branches arrive, answer or go on, and are gone. Of those the core keeps
// one record each (light.go, light_future.go), and makes the general ones
// when something asks for more.
//
// # Ownership
//
// The caller holds one mutex around every call of a Core. Slices given to the
// core or to Effects are valid during that call only, except a Run's Payload:
// see Run. Effects never call the core.
//
// # Errors
//
// Sentinels are for branching on (errors.Is), typed errors for their data
// (errors.As). Recv returns an error only if the peer broke the protocol.
//
// docs/travel.md has the messages, the state machines, and the reasons.
package travel
