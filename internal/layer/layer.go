// Package layer keeps to this module what its layers need of an element and its users do not: only code that can name a Pass gets
// a fabric.Layer, and a program outside of this module cannot.
package layer

// Pass is what fabric.Element.Layer asks for.
type Pass struct{}
