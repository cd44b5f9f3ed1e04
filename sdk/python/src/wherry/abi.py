"""What functions and elements agree on. Generated from inject/abi and internal/libllvm: run go generate ./sdk."""

VERSION = 2
ENTRY = "wherry_main"
PREFIX = "wherry_"

# Host calls: the C types of the result and of the parameters.
CALLS = {
    "self": ("int32_t", ()),
    "elements": ("int32_t", ()),
    "owner": ("int32_t", ("uint32_t", "uint64_t", "uint64_t *", )),
    "row": ("int64_t", ("uint32_t", "int32_t", "uint64_t", )),
    "shard_rows": ("int32_t", ("uint32_t", "int32_t", "wherry_rows_range_t *", )),
    "window": ("int32_t", ("uint32_t", "wherry_window_t *", )),
    "window_at": ("int32_t", ("uint32_t", "uint64_t", "wherry_view_t *", )),
    "payload": ("int32_t", ("wherry_payload_t *", )),
    "scratch": ("void *", ("uint64_t", )),
    "reply": ("int32_t", ("const void *", "uint32_t", )),
    "reply_part": ("int32_t", ("const void *", "uint32_t", )),
    "forward": ("int32_t", ("uint32_t", "int32_t", "const void *", "uint32_t", )),
    "fork": ("int32_t", ("uint32_t", "int32_t", "const void *", "uint32_t", )),
    "derive": ("int32_t", ("const void *", "uint32_t", )),
    "constants": ("int32_t", ("void *", "uint32_t", )),
    "assemble": ("int32_t", ("const void *", "uint32_t", )),
    "get": ("int32_t", ("int32_t", "uint32_t", "uint64_t", "void *", "uint32_t", )),
    "get_near": ("int32_t", ("int32_t", "uint32_t", "uint64_t", "void *", "uint32_t", )),
    "put": ("int32_t", ("int32_t", "uint32_t", "uint64_t", "const void *", "uint32_t", )),
    "atomic": ("int32_t", ("int32_t", "uint32_t", "uint64_t", "uint32_t", "uint32_t", "uint64_t", "uint64_t", "uint64_t *", )),
    "log": ("void", ("const char *", "uint32_t", )),
    "now": ("uint64_t", ()),
    "remaining": ("uint64_t", ()),
    "random": ("uint64_t", ()),
}

# What host calls answer.
STATUSES = {
    "OK": 0,
    "ERR_ARGUMENT": -1,
    "ERR_MEMORY": -2,
    "ERR_RIGHTS": -3,
    "ERR_REVOKED": -4,
    "ERR_PEER_LOST": -5,
    "ERR_BACKPRESSURE": -6,
    "ERR_LIMIT": -7,
    "ERR_DONE": -8,
    "ERR_DEADLINE": -9,
    "ERR_CANCELED": -10,
    "ERR_NO_WINDOW": -11,
    "ERR_UNSUPPORTED": -12,
    "ERR_OUTCOME_UNKNOWN": -13,
    "ERR_FAR": -14,
}

# What compilers call by themselves, and every element has.
HELPERS = frozenset((
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "__udivti3",
    "__umodti3",
    "__divti3",
    "__modti3",
    "__multi3",
))

# Intrinsics of LLVM that elements run.
INTRINSICS = frozenset((
    "abs", "smax", "smin", "umax", "umin", "scmp", "ucmp", "ctpop", "ctlz", "cttz", "bswap", "bitreverse", "fshl", "fshr",
    "sadd.with.overflow", "uadd.with.overflow", "ssub.with.overflow", "usub.with.overflow", "smul.with.overflow", "umul.with.overflow",
    "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat", "sshl.sat", "ushl.sat", "fptosi.sat", "fptoui.sat",
    "sqrt", "fabs", "copysign", "floor", "ceil", "trunc", "rint", "nearbyint", "roundeven", "is.fpclass",
    "memcpy", "memmove", "memset", "memcpy.inline", "memset.inline",
    "vector.reduce.add", "vector.reduce.mul", "vector.reduce.and", "vector.reduce.or", "vector.reduce.xor",
    "vector.reduce.smax", "vector.reduce.smin", "vector.reduce.umax", "vector.reduce.umin",
    "masked.load", "masked.store", "masked.gather", "masked.scatter",
    "lifetime.start", "lifetime.end", "invariant.start", "invariant.end", "launder.invariant.group", "strip.invariant.group",
    "assume", "expect", "expect.with.probability", "objectsize", "is.constant", "prefetch", "sideeffect", "donothing",
    "experimental.noalias.scope.decl", "stacksave", "stackrestore", "trap", "ubsantrap", "ptrmask",
    "dbg.declare", "dbg.value", "dbg.label", "dbg.assign",
))
