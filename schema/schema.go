// Package schema describes fixed-size records: the rows of a dataset, a
// function's parameters and its results. A record is laid out as a C struct
// with natural alignment, little-endian, so that a function in any language reads it in place.
//
// # Model
//
// A Schema is a list of Fields. Its Layout gives each field's place in a
// record. The same record appears in three settings, which differ only in where
// the text of Str fields lies:
//
//   - a dataset: records in window 0, text in window 1 (package dataset);
//   - arguments: one record, its text right behind it (EncodeArgs);
//   - a result part: a header, records, their text (DecodePart, PartBuilder).
//
// # Errors
//
// Every error names the field and the value at fault. ErrSchema, ErrArgument
// and ErrPart tell a bad declaration, a bad value and bad bytes apart.
package schema

// Limits of a schema.
const (
	// MaxFields bounds the fields of a record: no table we know of comes near.
	MaxFields = 256
	// MaxNameBytes bounds a field's name.
	MaxNameBytes = 64
	// MaxHelpBytes bounds a field's help text: one screen line or two.
	MaxHelpBytes = 256
	// MaxDefaultBytes bounds a parameter's default.
	MaxDefaultBytes = 1024
	// MaxOneOf and MaxOneOfBytes bound the values that a parameter may be kept to: words, for people to read.
	MaxOneOf      = 32
	MaxOneOfBytes = 64
	// MaxBytesN bounds N of a "bytesN" field.
	MaxBytesN = 4096
	// MaxRecordBytes bounds a record: the smallest buffers that hold a few of
	// them stay well below a 64 KiB fragment.
	MaxRecordBytes = 16 << 10
)

// The ways a field of several rows is combined (Field.Merge).
const (
	MergeNone  = ""      // rows stay apart
	MergeKey   = "key"   // rows that agree in all keys form a group
	MergeSum   = "sum"   // the sum over the group; integer overflow is an error
	MergeMin   = "min"   // the least of the group
	MergeMax   = "max"   // the greatest of the group
	MergeCount = "count" // how many rows the group has; what the rows hold is ignored
)

// Type is a field's type.
type Type string

const (
	I8   Type = "i8"
	I16  Type = "i16"
	I32  Type = "i32"
	I64  Type = "i64"
	U8   Type = "u8"
	U16  Type = "u16"
	U32  Type = "u32"
	U64  Type = "u64"
	F32  Type = "f32"
	F64  Type = "f64"
	Bool Type = "bool" // one byte, 0 or 1
	// Str is text of any length: two u32, offset and length, into the bytes
	// that go with the record (a dataset's string window; the payload or part
	// itself, from its first byte, for parameters and results).
	Str Type = "str"
	// Bytes of a fixed length N are written "bytesN", as in "bytes16".

	// Column is a parameter that names a column of the dataset a function runs
	// on; it travels as two u32: the column's byte offset in a row, and its
	// type's code (Type.Code).
	Column Type = "column"
)

// Field is one field of a record.
type Field struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Default is a parameter's value if none is given; a parameter without one must be given.
	Default *string `json:"default,omitempty"`
	Help    string  `json:"help,omitempty"`
	// OneOf are the only values that a parameter takes; those of an integer may be ranges ("0..254"), or the one word
	// RowNumber, which says the same of an integer field of a result; those of a Column are the types and kinds (KindInteger, …) of the columns that it may name. nil: any of its type.
	OneOf []string `json:"one_of,omitempty"`
	// Merge says how the same field of rows from several elements is combined once
	// all parts are in: "" keeps rows apart, "key" groups by it, "sum", "min", "max" and
	// "count" combine within a group.
	Merge string `json:"merge,omitempty"`
}

// Schema is a record's fields in order.
type Schema struct {
	Fields []Field `json:"fields"`
}
