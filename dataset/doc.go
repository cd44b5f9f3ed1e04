// Package dataset turns files into the windows of shards: columns (CSV, NDJSON, Parquet, Arrow), records (raw, or made of columns) and
// graphs (edge lists as text or columns, or a CSR that is in memory already).
//
// # Model
//
// Loading takes two steps. Scan reads the input once, checks every value, and
// returns a Plan: how many rows there are, how they are spread over elements,
// and how large each element's windows are. Plan.Fill then has a Sink make
// the windows, exactly that large, reads the input again and writes each row where it
// belongs. So a bad file fails before any memory is lent for it, windows never
// move, and the loader itself holds a few buffers: of a records dataset never more than
// a chunk of columns and a bufferBytes per window, of a graph some bytes per vertex (Options.MemoryBytes).
// What cannot be read twice, such as a pipe, is put in a Spool first.
//
// Columns are read once. Scan finds out which there are, and infers the types of text. Plan.Fill builds chunks and gathers them
// into a part; when that is full the Sink makes its windows, and it is written. What the plan says of rows and sizes is known then.
//
// Several nodes that each have a part of the data scan their own file with one element;
// cluster.BlockOf joins the counts to one sharding.
//
// # Ownership
//
// A Plan belongs to one goroutine and can be filled once. A Sink is called from
// that goroutine only and owns no slice that it is handed.
//
// # Errors
//
// A value that does not fit is a LineError: file, line, column, value. ErrOptions, ErrInput,
// ErrChanged and ErrTooLarge tell the other kinds apart.
package dataset
