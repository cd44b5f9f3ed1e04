"""Write functions that travel to where the data is, in Python.

    import numpy as np
    import wherry

    @wherry.function(start="owner", owner_param="start", params={"start": "u64", "depth": "u64"},
                     result={"row": "u64"}, result_form="record", windows=[{"name": "table", "type": "u64"}])
    def chase(at):
        ...

    chase.pack("chase.wfn")

docs/python.md says what such a function may do. It is compiled, never run here: calls like wherry.owner mean
something only inside of one.
"""

from .abi import STATUSES
from .calls import (atomic, constants, derive, elements, fork, fork_as, forward, forward_as, get, get_near, log, now, owner, put,
                    random, record, remaining, reply, reply_part, row, scratch, self_index, shard_rows, window)
from .compile import TARGETS, CompileError
from .function import Function, function
from .schema import dtype

for _name, _value in STATUSES.items():
    globals()[_name] = _value
del _name, _value

__all__ = ["CompileError", "Function", "TARGETS", "atomic", "constants", "derive", "dtype", "elements", "fork", "fork_as",
           "forward", "forward_as", "function", "get", "get_near", "log", "now", "owner", "put", "random", "record", "remaining", "reply",
           "reply_part", "row", "scratch", "self_index", "shard_rows", "window", *STATUSES]
