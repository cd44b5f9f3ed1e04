"""A pointer chase in Python: it follows a chain of row numbers through a table that is spread over many machines.

    python -m wherry chase.py                    # makes chase.wfn
"""

import numpy as np

import wherry

REPLY = wherry.dtype({"row": "u64"})


@wherry.function(start="owner", owner_param="start", params={"start": "u64", "depth": "u64"},
                 result={"row": "u64"}, result_form="record", windows=[{"name": "table", "type": "u64"}])
def chase(at):
    """Takes depth steps row = table[row] from row start on, and answers with the row that it ends on."""
    table = wherry.window(0, np.uint64)
    here = wherry.self_index()
    while at.depth > 0:
        element, local = wherry.owner(at.start)
        if element < 0:
            wherry.log("a step led to what is no row")
            return wherry.ERR_ARGUMENT
        if element != here:
            return wherry.forward(element, at)  # at is the payload: what is left to do goes along
        at.start = table[local]
        at.depth -= 1
    answer = wherry.record(REPLY)
    answer.row = at.start
    return wherry.reply(answer)
