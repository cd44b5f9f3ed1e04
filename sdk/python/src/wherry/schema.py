"""Schemas as manifests have them, and the numpy types of their records."""

import re

import numpy as np

_FIXED = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
          "u32": np.uint32, "u64": np.uint64, "f32": np.float32, "f64": np.float64, "bool": np.bool_}

# The offset of a text counts from the first byte of the payload, the part of a result, or the window with the text.
_TEXT = np.dtype([("offset", np.uint32), ("size", np.uint32)])
_COLUMN = np.dtype([("offset", np.uint32), ("type", np.uint32)])


class SchemaError(ValueError):
    """What is wrong with a schema."""


def fields(schema):
    """The list of fields that a manifest has, of {"name": "u64", …} or {"name": {"type": "u64", "help": …}, …}."""
    return [{"name": name, **(of if isinstance(of, dict) else {"type": of})} for name, of in schema.items()]


def _of(type_name):
    if type_name in _FIXED:
        return _FIXED[type_name]
    if type_name == "str":
        return _TEXT
    if type_name == "column":
        return _COLUMN
    size = re.fullmatch(r"bytes([1-9][0-9]*)", type_name)
    if size:
        return (np.uint8, (int(size[1]),))
    raise SchemaError(f"no type is called {type_name!r}: i8 to i64, u8 to u64, f32, f64, bool, str, bytesN, and column "
                      "for parameters")


def dtype(schema):
    """The numpy type of a record with these fields: laid out as C does, which is how records lie in windows and payloads.

    It is the type of elements for wherry.window and wherry.scratch, and of what wherry.record makes.
    """
    return np.dtype([(f["name"], _of(f["type"])) for f in fields(schema)], align=True)
