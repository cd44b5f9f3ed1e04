// Package faulttest holds the tests of what goes wrong when functions travel:
// bad images, bad functions, bad keys, killed elements, full queues. It has
// nothing to import.
//
// # Model
//
// A grid is a few elements that run functions and a client, connected over
// sockets. Elements that are killed are processes of their own: the test binary
// started once more. The functions are C, in guest, and built when the tests
// start. Every case ends with an error that names the element, the function and
// the reason, and then with calls that every element that is left must answer.
package faulttest
