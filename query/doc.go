// Package query plans questions over a dataset's columns: what to filter, project, group and aggregate, at the nodes, and how what
// they answer is put together.
//
// # Model
//
// A Query is text. Make checks it against a dataset's columns and makes a Plan, whose Program is the payload of the ready function
// query, which runs on every element and reads the columns where they lie. Each element answers with a stream of rows, or of groups with
// partial states. A Merge reads the streams and gives the answer as columns: sums are added, least and greatest compared,
// rows ordered and cut off.
//
//	p, err := query.Make(query.Query{Where: "status >= 500", Group: []string{"level"}, Agg: []string{"n=count()"}}, columns)
//	// … run function "query" with p.Program() on every element …
//	m := p.Merge()
//	err = m.Add(stream) // of each element
//	arrays, rows, err := m.Finish()
//
// There are no joins and there is no SQL: a program that reads the answer, as DuckDB reads Arrow, does the rest.
//
// # Errors
//
// ErrQuery says what is wrong with a query, expr.ErrExpr where an expression is wrong. ErrAnswer says that an element's answer is malformed.
//
// The package is pure: no clock, no network, no goroutine.
package query
