// Package fabric is the four verbs everything else is built from: Put, Get and
// Atomic on a peer's memory, and Send, an active message.
package fabric
