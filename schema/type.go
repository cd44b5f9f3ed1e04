package schema

import (
	"strconv"
	"strings"
)

// Codes of types as they appear in a Column argument and in encoded tables.
// They are part of the function ABI and never change. A "bytesN" field has
// codeBytes + N.
const (
	codeI8 uint32 = 1 + iota
	codeI16
	codeI32
	codeI64
	codeU8
	codeU16
	codeU32
	codeU64
	codeF32
	codeF64
	codeBool
	codeStr
	codeColumn

	codeBytes uint32 = 1 << 16
)

// strBytes is the size of a Str and of a Column field: two u32.
const strBytes = 8

// typeInfo is what is fixed about each type but bytesN.
type typeInfo struct {
	typ         Type
	code        uint32
	size, align uint32
	ctype       string
}

var types = [...]typeInfo{
	{I8, codeI8, 1, 1, "int8_t"},
	{I16, codeI16, 2, 2, "int16_t"},
	{I32, codeI32, 4, 4, "int32_t"},
	{I64, codeI64, 8, 8, "int64_t"},
	{U8, codeU8, 1, 1, "uint8_t"},
	{U16, codeU16, 2, 2, "uint16_t"},
	{U32, codeU32, 4, 4, "uint32_t"},
	{U64, codeU64, 8, 8, "uint64_t"},
	{F32, codeF32, 4, 4, "float"},
	{F64, codeF64, 8, 8, "double"},
	{Bool, codeBool, 1, 1, "uint8_t"},
	{Str, codeStr, strBytes, 4, ""},
	{Column, codeColumn, strBytes, 4, ""},
}

// info looks a type up; ok is false for what is no type at all.
func (t Type) info() (typeInfo, bool) {
	for i := range types {
		if types[i].typ == t {
			return types[i], true
		}
	}
	if n, ok := t.BytesLen(); ok {
		return typeInfo{typ: t, code: codeBytes + uint32(n), size: uint32(n), align: 1, ctype: "uint8_t"}, true
	}
	return typeInfo{}, false
}

// BytesLen is N of a "bytesN" type (1 to MaxBytesN, written without leading
// zeros); ok is false for every other type.
func (t Type) BytesLen() (n int, ok bool) {
	digits, ok := strings.CutPrefix(string(t), "bytes")
	if !ok || digits == "" || digits[0] == '0' || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > MaxBytesN {
		return 0, false
	}
	return n, true
}

// BytesType is the type "bytesN".
func BytesType(n int) Type { return Type("bytes" + strconv.Itoa(n)) }

// Valid reports whether t is a type.
func (t Type) Valid() bool {
	_, ok := t.info()
	return ok
}

// Size is the bytes that a field of this type takes in a record, 0 if t is no type.
func (t Type) Size() uint32 {
	i, _ := t.info()
	return i.size
}

// Align is the type's alignment in a record, 0 if t is no type.
func (t Type) Align() uint32 {
	i, _ := t.info()
	return i.align
}

// Code is the type's number in the function ABI, 0 if t is no type.
func (t Type) Code() uint32 {
	i, _ := t.info()
	return i.code
}

// TypeOfCode is the inverse of Type.Code.
func TypeOfCode(code uint32) (Type, bool) {
	if code > codeBytes && code <= codeBytes+MaxBytesN {
		return BytesType(int(code - codeBytes)), true
	}
	for i := range types {
		if types[i].code == code {
			return types[i].typ, true
		}
	}
	return "", false
}

// IsInteger reports whether t is one of i8 to u64.
func (t Type) IsInteger() bool {
	c := t.Code()
	return c >= codeI8 && c <= codeU64
}

// IsSigned reports whether t is one of i8 to i64.
func (t Type) IsSigned() bool {
	c := t.Code()
	return c >= codeI8 && c <= codeI64
}

// IsFloat reports whether t is f32 or f64.
func (t Type) IsFloat() bool { return t == F32 || t == F64 }

// typeNames lists what a type may be, for messages.
const typeNames = "i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool str bytesN column"
