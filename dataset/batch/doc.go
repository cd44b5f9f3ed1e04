// Package batch writes record batches for other programs and for people: as an Arrow stream, Parquet, CSV, JSON, NDJSON or a table. Rows of C structs
// become batches by OfRows.
//
// A Writer takes batches of one schema, one after the other, and is closed at the end. An Arrow stream is what Python, DuckDB and
// Polars read; text in it is plain, whichever way it was stored. In the text formats a timestamp is written as RFC 3339 has it, in its
// column's zone, a missing value as nothing (CSV, table) or null, binary in hexadecimal digits.
package batch
