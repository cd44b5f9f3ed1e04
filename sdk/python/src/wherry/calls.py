"""The host calls, typed. Each becomes a call of the element's; none can be called from Python itself.

Where the ABI takes an address and a size, these take a record, an array, a number or a constant text, of which both are
known. Most answer a status: 0, or a negative number such as wherry.ERR_LIMIT.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np import arrayobj

from .abi import CALLS, PREFIX

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_PTR = cgutils.voidptr_t
_IR = {"int32_t": _I32, "uint32_t": _I32, "int64_t": _I64, "uint64_t": _I64, "void": ir.VoidType()}

# What the element writes for window: address (as C has it in 64 bits), flags, size.
_WINDOW = ir.LiteralStructType([_PTR, _I32, _I64])
_RANGE = ir.LiteralStructType([_I64, _I64])

# What dataset and function are called that a function was called on, and is.
_OWN = ir.Constant(_I32, 0)


def _ir(c_type):
    return _PTR if c_type.endswith("*") else _IR[c_type]


def _call(builder, name, *args):
    """Call the element."""
    result, params = CALLS[name]
    kinds = [_ir(p) for p in params]
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_ir(result), kinds), PREFIX + name)
    return builder.call(function, [builder.bitcast(a, _PTR) if isinstance(a.type, ir.PointerType) else a for a in args])


_I, _U32, _U64 = types.int32, types.uint32, types.uint64


def _data(context, builder, typ, value):
    """Address and size of what is sent."""
    if isinstance(typ, types.Array):
        array = context.make_array(typ)(context, builder, value)
        return array.data, builder.mul(array.nitems, array.itemsize)
    if isinstance(typ, types.Record):
        return value, ir.Constant(_I64, typ.size)
    if isinstance(typ, types.StringLiteral):
        text = typ.literal_value.encode()
        return context.insert_const_string(builder.module, typ.literal_value), ir.Constant(_I64, len(text))
    place = cgutils.alloca_once_value(builder, context.get_value_as_data(builder, typ, value))
    return place, ir.Constant(_I64, context.get_abi_sizeof(context.get_data_type(typ)))


def _sendable(typ, what="what is sent"):
    """The type that is sent: a literal text as it is, other literals as numbers."""
    if isinstance(typ, types.StringLiteral):
        return typ
    typ = types.unliteral(typ)
    if isinstance(typ, types.Array):
        if not typ.is_c_contig:
            raise TypingError(f"wherry: {what} is an array that does not lie in one piece")
    elif not isinstance(typ, (types.Record, types.Integer, types.Float, types.Boolean)):
        raise TypingError(f"wherry: {what} is a record, an array, a number or a constant text, and this is {typ}")
    return typ


def _written(typ):
    """The type of a place that the element writes to."""
    typ = _sendable(typ, "what is written to")
    if not isinstance(typ, (types.Array, types.Record)):
        raise TypingError(f"wherry: what is written to is a record or an array, and this is {typ}")
    return typ


def _bytes(builder, size):
    return builder.trunc(size, _I32)


def _plain(name, result, *args, before=()):
    """A host call of numbers only; before are those that Python does not give."""
    def typed(typingctx, *given):
        def generate(context, builder, signature, values):
            return _call(builder, name, *before, *values)
        return result(*args), generate
    return typed


@intrinsic
def self_index(typingctx):
    """Index of this element in the shard table."""
    return _plain("self", _I)(typingctx)


@intrinsic
def elements(typingctx):
    """Number of elements in the shard table."""
    return _plain("elements", _I)(typingctx)


@intrinsic
def row(typingctx, element, local):
    """The row that an element holds at index local, or a negative status."""
    return _plain("row", types.int64, _I, _U64, before=(_OWN,))(typingctx)


@intrinsic
def now(typingctx):
    """Wall clock, nanoseconds since 1970."""
    return _plain("now", _U64)(typingctx)


@intrinsic
def remaining(typingctx):
    """Nanoseconds until the invocation's deadline."""
    return _plain("remaining", _U64)(typingctx)


@intrinsic
def random(typingctx):
    """64 bits that nobody can foresee."""
    return _plain("random", _U64)(typingctx)


@intrinsic
def owner(typingctx, row):
    """(element, local): who holds a row, and its index there; element is negative if nobody does."""
    result = types.Tuple((_I, _U64))

    def generate(context, builder, signature, args):
        local = cgutils.alloca_once_value(builder, ir.Constant(_I64, 0))
        element = _call(builder, "owner", _OWN, args[0], local)
        return context.make_tuple(builder, result, (element, builder.load(local)))
    return result(_U64), generate


@intrinsic
def shard_rows(typingctx, element):
    """(status, first, count): the range of rows that an element holds."""
    result = types.Tuple((_I, _U64, _U64))

    def generate(context, builder, signature, args):
        place = cgutils.alloca_once_value(builder, ir.Constant(_RANGE, None))
        status = _call(builder, "shard_rows", _OWN, args[0], place)
        first, count = (builder.load(cgutils.gep_inbounds(builder, place, 0, i)) for i in (0, 1))
        return context.make_tuple(builder, result, (status, first, count))
    return result(_I), generate


def _element(typ):
    """The type of elements that a dtype argument names."""
    if isinstance(typ, (types.DType, types.NumberClass)):
        return typ.dtype
    raise TypingError(f"wherry: a type of elements is a numpy type or a wherry.dtype, as a constant, and this is {typ}")


def _array(context, builder, typ, address, count):
    """An array on memory that is there: nobody counts references to it."""
    array = context.make_array(typ)(context, builder)
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(typ.dtype)))
    arrayobj.populate_array(array, data=builder.bitcast(address, array.data.type), shape=[count], strides=[size],
                            itemsize=size, meminfo=None)
    return array._getvalue()


@intrinsic
def window(typingctx, index, dtype):
    """A window of this element as an array; one without elements if there is none, because its shard has no rows."""
    result = types.Array(_element(dtype), 1, "C")

    def generate(context, builder, signature, args):
        place = cgutils.alloca_once_value(builder, ir.Constant(_WINDOW, None))
        status = _call(builder, "window", args[0], place)
        address, size = (builder.load(cgutils.gep_inbounds(builder, place, 0, i)) for i in (0, 2))
        there = builder.icmp_signed("==", status, ir.Constant(_I32, 0))
        each = context.get_abi_sizeof(context.get_data_type(result.dtype))
        count = builder.select(there, builder.udiv(size, ir.Constant(_I64, each)), ir.Constant(_I64, 0))
        return _array(context, builder, result, address, count)
    return result(_U32, dtype), generate


@intrinsic
def scratch(typingctx, count, dtype):
    """The invocation's scratch on this element, as an array of count elements; one without elements if it is refused."""
    result = types.Array(_element(dtype), 1, "C")

    def generate(context, builder, signature, args):
        each = context.get_abi_sizeof(context.get_data_type(result.dtype))
        address = _call(builder, "scratch", builder.mul(args[0], ir.Constant(_I64, each)))
        none = builder.icmp_unsigned("==", address, ir.Constant(_PTR, None))
        return _array(context, builder, result, address, builder.select(none, ir.Constant(_I64, 0), args[0]))
    return result(_U64, dtype), generate


@intrinsic
def record(typingctx, dtype):
    """A record on the stack, of zeros."""
    result = _element(dtype)
    if not isinstance(result, types.Record):
        raise TypingError(f"wherry: record makes a record, and this is {result}")

    def generate(context, builder, signature, args):
        memory = ir.ArrayType(ir.IntType(8), result.size)
        place = cgutils.alloca_once(builder, memory)
        place.align = 16
        builder.store(ir.Constant(memory, None), place)
        return builder.bitcast(place, context.get_value_type(result))
    return result(dtype), generate


def _sender(name, *before, own=()):
    """A host call that takes data behind some numbers; own are those before them that Python does not give."""
    def typed(data):
        data = _sendable(data)

        def generate(context, builder, signature, args):
            address, size = _data(context, builder, data, args[len(before)])
            return _call(builder, name, *own, *args[:len(before)], address, _bytes(builder, size))
        return _ir_result(name)(*before, data), generate
    return typed


def _ir_result(name):
    return types.void if CALLS[name][0] == "void" else _I


@intrinsic(prefer_literal=True)
def reply(typingctx, data):
    """End the branch with this as its result, or as the last part of it. A status."""
    return _sender("reply")(data)


@intrinsic(prefer_literal=True)
def reply_part(typingctx, data):
    """Send a part of the result ahead, of at most 59 KiB. A status."""
    return _sender("reply_part")(data)


@intrinsic(prefer_literal=True)
def log(typingctx, text):
    """Write a line to the element's log. If the run fails, its beginning goes to the caller too."""
    return _sender("log")(text)


@intrinsic(prefer_literal=True)
def forward(typingctx, element, data):
    """Continue this branch on another element, with this as its payload. A status."""
    return _sender("forward", _I, own=(_OWN,))(data)


@intrinsic(prefer_literal=True)
def fork(typingctx, element, data):
    """Start another branch on an element, which may be this one. A status."""
    return _sender("fork", _I, own=(_OWN,))(data)


@intrinsic(prefer_literal=True)
def forward_as(typingctx, function, element, data):
    """forward, as a run of the function that derive gave."""
    return _sender("forward", _U32, _I)(data)


@intrinsic(prefer_literal=True)
def fork_as(typingctx, function, element, data):
    """fork, as a run of the function that derive gave."""
    return _sender("fork", _U32, _I)(data)


@intrinsic
def derive(typingctx, constants):
    """The number of a function that is this one with these constants, a record as the manifest has it; negative: a status."""
    return _sender("derive")(constants)


@intrinsic
def constants(typingctx, into):
    """Fill a record with the constants with which this function was derived. A status."""
    return _sender("constants")(_written(into))


@intrinsic
def put(typingctx, element, window, offset, data):
    """Copy this to a window of any element, at a byte. A status."""
    return _sender("put", _I, _U32, _U64)(data)


@intrinsic
def get(typingctx, element, window, offset, into):
    """Fill a record or an array from a window of any element, from a byte on. A status."""
    return _sender("get", _I, _U32, _U64)(_written(into))


@intrinsic
def get_near(typingctx, element, window, offset, into):
    """get, if the window's memory is mapped at this element; else ERR_FAR, and nothing is done. A status."""
    return _sender("get_near", _I, _U32, _U64)(_written(into))


@intrinsic
def atomic(typingctx, element, window, offset, op, width, operand, compare):
    """(status, old): an atomic operation on 4 or 8 bytes of a window; operations are numbered as in the ABI, from 1: add, swap,
    compare and swap, and, or, xor."""
    result = types.Tuple((_I, _U64))

    def generate(context, builder, signature, args):
        old = cgutils.alloca_once_value(builder, ir.Constant(_I64, 0))
        status = _call(builder, "atomic", *args, old)
        return context.make_tuple(builder, result, (status, builder.load(old)))
    return result(_I, _U32, _U64, _U32, _U32, _U64, _U64), generate
