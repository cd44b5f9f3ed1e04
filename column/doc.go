// Package column is what wherry says about columns: their names, their types, and how both are written.
//
// # Model
//
// A dataset of kind columns has a Schema, a list of Columns. Each Column has a name, which may be any text, a Type
// and whether values may be missing. Types are Apache Arrow's; their text form is short enough for a command line:
//
//	i8 … i64, u8 … u64, f32, f64, bool
//	date32, time32[s], time64[us], timestamp[ms], timestamp[us, Europe/Berlin], duration[ns]
//	decimal128(10, 2)
//	utf8, binary, bytes16, uuid, ip
//
// How text is stored (plain, or as numbers into a dictionary) is not part of a type: each part of a dataset decides that
// for itself.
//
// # Ownership
//
// Types and Columns are values. The package holds neither files nor memory, and imports the standard library only, so that
// shard tables, which every element reads, can use it.
//
// # Errors
//
// ErrType and ErrSchema say what is wrong; messages name the column and the nearest type.
package column
