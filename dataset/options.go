package dataset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

var (
	// ErrOptions says that options do not fit together; the message says which.
	ErrOptions = errors.New("dataset: bad options")
	// ErrInput says that the input as a whole is wrong, such as a header that lacks a column.
	ErrInput = errors.New("dataset: bad input")
	// ErrChanged says that the input is not what it was when it was scanned.
	ErrChanged = errors.New("dataset: the input changed while it was loaded")
	// ErrTooLarge says that a limit is exceeded.
	ErrTooLarge = errors.New("dataset: too large")
)

const (
	// DefaultLineBytes bounds a line, or a CSV record of several lines.
	DefaultLineBytes = 1 << 20
	// MaxLineBytes is the most that Options.LineBytes can be.
	MaxLineBytes = 64 << 20
	// DefaultMemoryBytes is what a loader of graphs or columns may take: about 60 million
	// vertices with numbers, or 20 million with short names; columns of that size.
	DefaultMemoryBytes = 2 << 30
	// MaxVertices bounds a graph: vertices have 32 bits.
	MaxVertices = 1<<32 - 1
	// MaxVertexNameBytes bounds the name of a vertex.
	MaxVertexNameBytes = 1024
)

// Format is how an input is written.
type Format string

const (
	// RawFile is fixed-size records, one after the other.
	RawFile Format = "raw"
	// CSV is RFC 4180 as encoding/csv reads it.
	CSV Format = "csv"
	// NDJSON is a JSON object per line.
	NDJSON Format = "ndjson"
	// Edges is a graph: text with an edge per line, two vertices, or a Parquet or Arrow file with their columns or lists.
	Edges Format = "edges"
	// Parquet is Apache Parquet; it says itself which columns it has. It is loaded as columns.
	Parquet Format = "parquet"
	// Arrow is an Apache Arrow IPC file or stream; it says itself which columns it has. It is loaded as columns.
	Arrow Format = "arrow"
)

var formats = []string{string(RawFile), string(CSV), string(NDJSON), string(Edges), string(Parquet), string(Arrow)}

// Columnar reports whether the input is loaded as columns: all but raw records and graphs are, unless each row is to be one value of fixed width.
func (o *Options) Columnar() bool {
	switch o.Format {
	case CSV, NDJSON, Parquet, Arrow:
		return !o.Packed && (o.Schema == nil || len(o.Schema.Fields) != 1 || o.Schema.Fields[0].Type == schema.Str)
	}
	return false
}

// ParseFormat checks a format's name.
func ParseFormat(name string) (Format, error) {
	if slices.Contains(formats, name) {
		return Format(name), nil
	}
	return "", fmt.Errorf("%w: there is no format %q; %s", ErrOptions, name, schema.Suggest(name, formats))
}

// FormatOf guesses the format and the CSV separator from a file's name; ok is
// false if it tells nothing. A final .gz or .zst is looked through.
func FormatOf(path string) (f Format, comma byte, ok bool) {
	_, path = compressionOf(path)
	switch filepath.Ext(path) {
	case ".csv":
		return CSV, ',', true
	case ".tsv", ".tab":
		return CSV, '\t', true
	case ".ndjson", ".jsonl":
		return NDJSON, 0, true
	case ".edges", ".el", ".graph":
		return Edges, 0, true
	case ".parquet", ".pq":
		return Parquet, 0, true
	case ".arrow", ".arrows", ".feather", ".ipc":
		return Arrow, 0, true
	case ".raw", ".bin", ".rec":
		return RawFile, 0, true
	}
	return "", 0, false
}

// Spread is how rows shall be spread over elements.
type Spread struct {
	Kind     cluster.ShardKind // 0 is cluster.Block, or with a Key cluster.Hash
	Elements uint32            // 0 is 1
	Key      string            // of cluster.Hash: the field or column that decides; "" hashes row numbers
}

// Phase is what a load is doing.
type Phase string

const (
	PhaseSpool Phase = "spool" // copying a pipe to a file
	PhaseScan  Phase = "scan"  // checking and counting
	PhaseFill  Phase = "fill"  // writing windows
)

// Progress is called from the loading goroutine, often (at least once per MiB),
// with the bytes of the input done in this phase; total is -1 if it is not known. Bytes of a
// compressed input are compressed bytes. A graph too large for the memory budget is read
// several times in PhaseFill; total counts all of it.
type Progress func(phase Phase, done, total int64)

// Options say what the input is and how it is loaded. The zero value of a field
// is its usual value; Format is needed, and Schema for records.
type Options struct {
	Format Format
	// Schema names the columns that there shall be, and their types. A CSV file with a header may have more
	// columns, in any order; so may NDJSON objects. Without a header those of a CSV file are these.
	// One column of fixed width, or several that are Packed, are records: each row is one value, and none is missing.
	Schema *schema.Schema
	// Packed makes a C struct of each row, of the fields of Schema. Records of RawFile are structs anyway.
	Packed bool
	// Types stands in for Schema where a CSV header gives the names: one per column.
	Types  []schema.Type
	Header bool // CSV: the first line is names. Of columns without a Schema it is one anyway, but must not look like values unless this says so
	// NoHeader says of columns in CSV that there is no header: columns are called c1, c2, ….
	NoHeader bool
	// ColumnTypes are types of columns in CSV and NDJSON, by name; those of other columns are inferred.
	ColumnTypes column.Schema
	// Like are the columns that the files must have: those of the dataset that they are added to. Nothing is inferred then.
	Like column.Schema
	// Before reads what an element has already that is to be written again, in front of its first new row: chunks, whose arrays the load releases.
	Before func(ctx context.Context, element uint32, add func([]arrow.Array)) error
	// LargeParts has parts grow as far as they may: for a shard that has ManyParts.
	LargeParts bool
	// Nulls are texts that mean a missing value, in columns of CSV and NDJSON, beside an empty field without quotes.
	Nulls []string
	Comma byte // CSV: the separator, ',' if 0. Edges: the separator, spaces and tabs if 0
	// EmptyIsZero loads empty CSV fields, and missing or null NDJSON members,
	// as zero (or empty text); otherwise only empty text is accepted.
	EmptyIsZero bool
	// SkipBad is how many bad lines are left out (and counted in Plan.Bad)
	// before the load fails. 0 fails at the first, -1 never.
	SkipBad int64

	Names        bool // Edges: vertices have names, not numbers
	ExtraColumns bool // Edges: what follows the two vertices, and the weight, is ignored
	Weights      bool // Edges: a weight follows the two vertices, a finite number

	Spread      Spread
	LineBytes   int   // DefaultLineBytes if 0
	MemoryBytes int64 // DefaultMemoryBytes if 0; graphs and columns only, which keep parts in it while they grow
	Progress    Progress

	fields column.Schema // Schema, as columns of text; nil: the file says which there are
}

// Validate says what is wrong with the options, as Scan would.
func (o Options) Validate() error { return o.prepare() }

// prepare checks o and fills in defaults.
func (o *Options) prepare() error {
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return err
	}
	if err := o.checkApplies(); err != nil {
		return err
	}
	if o.LineBytes == 0 {
		o.LineBytes = DefaultLineBytes
	}
	if o.LineBytes < 16 || o.LineBytes > MaxLineBytes {
		return fmt.Errorf("%w: lines of %d bytes (--line-bytes), want 16 to %d", ErrOptions, o.LineBytes, MaxLineBytes)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.MemoryBytes < 1<<20 {
		return fmt.Errorf("%w: %d bytes of memory, want at least 1 MiB", ErrOptions, o.MemoryBytes)
	}
	if o.SkipBad < -1 {
		return fmt.Errorf("%w: %d bad lines to leave out (--skip-bad): want 0 or more, or -1 for any number", ErrOptions, o.SkipBad)
	}
	if o.Spread.Kind == 0 {
		o.Spread.Kind = cluster.Block
		if o.Spread.Key != "" {
			o.Spread.Kind = cluster.Hash
		}
	}
	if o.Spread.Elements == 0 {
		o.Spread.Elements = 1
	}
	if o.Progress == nil {
		o.Progress = func(Phase, int64, int64) {}
	}
	if err := o.checkComma(); err != nil {
		return err
	}
	switch {
	case len(o.Like) > 0 && !o.Columnar():
		return fmt.Errorf("%w: only columns can be added to columns, not graphs or rows that are one value of fixed width: leave out --packed, and a --schema of one field", ErrOptions)
	case o.Format == Edges:
		return o.checkGraph()
	case o.Columnar():
		return o.checkColumns()
	}
	return o.checkRecords()
}

// checkApplies refuses what the format has no use for: who gave it expects something else.
func (o *Options) checkApplies() error {
	for _, given := range []struct {
		is   bool
		what string
		of   []Format
	}{
		{o.Packed, "rows as C structs (--packed)", []Format{CSV, NDJSON, Parquet, Arrow, RawFile}},
		{o.Header, "a header line (--header)", []Format{CSV}},
		{o.NoHeader, "no header line (--header=false)", []Format{CSV}},
		{len(o.Nulls) > 0, "texts for missing values (--null)", []Format{CSV, NDJSON}},
		{o.Comma != 0, "a separator (--separator)", []Format{CSV, Edges}},
		{o.EmptyIsZero, "empty fields as zero (--empty-is-zero)", []Format{CSV, NDJSON, Parquet, Arrow}},
		{o.LineBytes != 0, "a longest line (--line-bytes)", []Format{CSV, NDJSON, Edges}},
		{o.Names, "names of vertices (--names)", []Format{Edges}},
		{o.Weights, "weights of edges (--weights)", []Format{Edges}},
		{o.ExtraColumns, "columns that are ignored (--extra-columns)", []Format{Edges}},
	} {
		if given.is && !slices.Contains(given.of, o.Format) {
			mend := ""
			if given.of[0] == Edges && (o.Format == Parquet || o.Format == Arrow) {
				mend = ": --format edges makes a graph of its columns"
			}
			return fmt.Errorf("%w: %s: only for the format %s, this is %s%s", ErrOptions, given.what, orList(given.of), o.Format, mend)
		}
	}
	return nil
}

// orList is formats for a sentence.
func orList(formats []Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return strings.Join(names, " or ")
}

func (o *Options) checkComma() error {
	switch {
	case o.Format == CSV && o.Comma == 0:
		o.Comma = ','
	case o.Comma == '"' || o.Comma == '\n' || o.Comma == '\r' || o.Comma >= 0x80 || o.Comma == '#' && o.Format == Edges:
		return fmt.Errorf("%w: %q cannot separate columns", ErrOptions, o.Comma)
	}
	return nil
}

func (o *Options) checkGraph() error {
	if o.Schema != nil || o.Types != nil {
		return fmt.Errorf("%w: a graph has no schema", ErrOptions)
	}
	if o.Spread.Key != "" {
		return fmt.Errorf("%w: a graph is not sharded by a key (%q)", ErrOptions, o.Spread.Key)
	}
	return o.spreadOver(0)
}

func (o *Options) checkColumns() error {
	itself := o.Format == Parquet || o.Format == Arrow
	if !itself && o.Schema != nil {
		if err := o.fieldColumns(); err != nil {
			return err
		}
	}
	switch {
	case itself && (o.Schema != nil || o.Types != nil || len(o.ColumnTypes) > 0):
		return fmt.Errorf("%w: a file of format %s says itself which columns it has: leave out --schema and --types (a --schema of one field of fixed width, or one with --packed, makes rows of that width)", ErrOptions, o.Format)
	case o.Header && o.NoHeader:
		return fmt.Errorf("%w: a file has a header line, or none", ErrOptions)
	case itself && o.SkipBad != 0:
		return o.noLines()
	case o.Spread.Kind != cluster.Block && o.Spread.Key == "":
		return fmt.Errorf("%w: columns are loaded in ranges of rows (--shard block) or by a key (--key COLUMN), not %v; rows that are one value of fixed width (--schema with one field, or --packed) can be spread in other ways too", ErrOptions, o.Spread.Kind)
	case o.EmptyIsZero:
		return fmt.Errorf("%w: in columns an empty field is a missing value (--empty-is-zero is for rows that are one value of fixed width: --schema with one field, or --packed)", ErrOptions)
	case o.Types != nil && (o.Schema != nil || o.Format != CSV || !o.Header):
		return fmt.Errorf("%w: types without names (--types u8,f64, where name:type has one) go with a CSV header (--header), and instead of a schema (--schema)", ErrOptions)
	}
	if err := o.checkLike(o.ColumnTypes); err != nil {
		return err
	}
	for _, c := range o.Like {
		if o.fields != nil && o.fields.Index(c.Name) < 0 {
			return fmt.Errorf("%w: the schema (--schema) does not name the column %q, which the dataset has: name it too, or leave the schema out if the file has a header", ErrOptions, c.Name)
		}
	}
	for _, c := range o.ColumnTypes {
		if _, err := putterOf(c.Type, false); err != nil && (o.Format != NDJSON || !c.Type.Nested()) {
			return err
		}
	}
	return o.spreadOver(0)
}

func (o *Options) noLines() error {
	return fmt.Errorf("%w: bad lines can be left out (--skip-bad) of csv, ndjson and edges, not of %s", ErrOptions, o.Format)
}

// checkLike checks types that are given for what is added to a dataset.
func (o *Options) checkLike(given column.Schema) error {
	for _, c := range given {
		if i := o.Like.Index(c.Name); len(o.Like) > 0 && (i < 0 || o.Like[i].Type != c.Type) {
			has := "has no such column"
			if i >= 0 {
				has = fmt.Sprintf("has it as %v", o.Like[i].Type)
			}
			return fmt.Errorf("%w: column %q: its type is given as %v, and the dataset %s: what is added has the same types", ErrOptions, c.Name, c.Type, has)
		}
	}
	return nil
}

// fieldColumns makes columns of the schema's fields.
func (o *Options) fieldColumns() error {
	if len(o.ColumnTypes) > 0 && o.fields == nil {
		return fmt.Errorf("%w: a schema (--schema) has the type of each column: leave out --types", ErrOptions)
	}
	if err := o.Schema.ValidateDataset(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if err := o.setFields(); err != nil {
		return err
	}
	o.ColumnTypes = o.fields
	return nil
}

func (o *Options) setFields() error {
	o.fields = nil
	for _, f := range o.Schema.Fields {
		t, err := fieldType(f.Type)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrOptions, f.Name, err)
		}
		o.fields = append(o.fields, column.Column{Name: f.Name, Type: t, Nullable: true})
	}
	return nil
}

// fieldType is the column type that holds a field's values.
func fieldType(t schema.Type) (column.Type, error) {
	if t == schema.Str {
		return column.Type{ID: column.UTF8}, nil
	}
	return column.Parse(string(t))
}

func (o *Options) checkRecords() error {
	if len(o.ColumnTypes) > 0 || len(o.Nulls) > 0 || o.NoHeader || o.Types != nil {
		return fmt.Errorf("%w: --types, texts for missing values (--null) and --header=false are for columns; rows that are one value of fixed width have a schema (--schema), and no value is missing", ErrOptions)
	}
	if o.Schema == nil {
		return fmt.Errorf("%w: rows of fixed width need a schema (--schema), as in id:u64,status:u16", ErrOptions)
	}
	if err := o.Schema.ValidateDataset(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if l, _ := o.Schema.Layout(); l.HasStr {
		return fmt.Errorf("%w: C structs (--packed, and --format raw) have no text: use bytesN fields, or load columns", ErrOptions)
	}
	if key := o.Spread.Key; key != "" && o.Schema.Index(key) < 0 {
		return fmt.Errorf("%w: the shard key %q is no column; %s", ErrOptions, key, schema.Suggest(key, o.Schema.Names()))
	}
	if (o.Format == Parquet || o.Format == Arrow) && o.SkipBad != 0 {
		return o.noLines()
	}
	if err := o.setFields(); err != nil {
		return err
	}
	return o.spreadOver(0)
}

// spreadOver checks the spread for a number of rows.
func (o *Options) spreadOver(rows uint64) error {
	s := o.sharding(rows)
	if o.Spread.Kind == cluster.Hash && o.Spread.Key != "" {
		s = cluster.KeyedOf(o.Spread.Key, make([]uint64, min(s.Elements, cluster.MaxElements+1)))
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// sharding is the spread without bounds.
func (o *Options) sharding(rows uint64) cluster.Sharding {
	return cluster.Sharding{Kind: o.Spread.Kind, Elements: o.Spread.Elements, Rows: rows, Key: o.Spread.Key}
}
