// Package expr reads expressions over columns, such as
//
//	status >= 500 && !isnull(ms)
//	col("user id") % 7 == 0 || hasprefix(level, "w")
//	when >= "2026-03-01T12:00:00Z"
//
// # Model
//
// Expressions are Go's, and package go/parser reads them. Names are columns; col("…") names one that is no Go name. A Node is a
// tree whose parts have types: integers (i64, u64), floats (f64), bool and utf8. Smaller integers are widened; the two signs do
// not mix, nor integers with floats, unless a cast says so, i64(x), u64(x) or f64(x); but a literal takes the type of what it is
// used with. A text literal beside a timestamp or a date is one, in the column's zone.
//
// Missing values are as in SQL: what is computed with one is missing, a comparison with one is neither true nor false, and
// false && missing is false. Integer division by zero gives a missing value; an integer that overflows is an error when the
// expression runs.
//
// # Errors
//
// ErrExpr, with the position in the text, and for an unknown name the nearest one.
//
// The package is pure: text and a schema in, a tree out.
package expr
