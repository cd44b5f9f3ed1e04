/*
Package exchange keeps the books of calls on one endpoint: which of ours wait for
an answer, which of the peer's have come before, and which payloads lie in
memory that the other side may still read.

# Model

It is a pure core: no clock, no lock, no goroutine and no network. Package rpc calls
it under its own locks, hands it the time, and carries out what it returns. So a
test can put a network of its own between two books, one that loses, repeats and reorders, and check
what must hold whatever happens:

  - Caller: each call ends once, with an answer, at its deadline, by
    cancellation or with the endpoint; an answer never meets another call.
  - Callee: a call runs at most once, also if its request comes twice, late, or
    after its cancellation.
  - Lending: a payload is given back for use once, and only when nobody can
    be reading it; where that is not known in time, it is closed instead.

# Numbers

An ID is a number that goes up by one with every request, and the slot of the
caller's record, so that an answer finds it without a map. The slot is free again when the call
has ended; the number never comes back, so that a late answer is known for what it is.
*/
package exchange
