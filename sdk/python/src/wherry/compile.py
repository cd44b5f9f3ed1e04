"""Makes LLVM bitcode of a function's Python, by Numba.

Numba compiles a Python function to an inner one, which computes, and to wrappers, which call Python. Only the inner one is
kept: what an element calls, wherry_main, is written here around it. Everything else becomes internal, and the optimiser, for
each processor, leaves host calls and arithmetic. What is left over besides would need Python at the element, and is refused.
"""

import inspect
import re

import llvmlite.binding as llvm
from numba.core import compiler, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.np import numpy_support

from .abi import CALLS, ENTRY, HELPERS, INTRINSICS, PREFIX, STATUSES

# Processors that bitcode is made for, as `wherry fn pack --targets` names them.
TARGETS = ("x86_64", "aarch64", "riscv64")

# The status with which a function ends that raised an exception: its own.
RAISED = 1

# What Numba calls of the C library that processors have an instruction for: what it takes and gives, and LLVM's name of that.
ROOTS = {"sqrt": ("double", "llvm.sqrt.f64"), "sqrtf": ("float", "llvm.sqrt.f32")}


class CompileError(Exception):
    """Why a function cannot be made, in words for whoever wrote it."""


def argument_types(function, params):
    """Numba's types of a function's arguments: its parameters if it has any, and its payload's bytes."""
    count = len(inspect.signature(function).parameters)
    payload = types.Array(types.uint8, 1, "C")
    kinds = [numpy_support.from_dtype(params), payload] if params is not None else [payload]
    if count > len(kinds):
        raise CompileError(f"{function.__name__} takes {count} arguments: at most " + (
            "two are possible, its parameters and the payload's bytes" if params is not None else "one is, the payload's bytes"))
    return kinds[:count]


@global_compiler_lock
def inner(function, args):
    """The module with a function's code, as text, and the name that the function has there."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target = target.with_aot_codegen(function.__name__)
    target.refresh()
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"  # a division by zero gives what it gives, instead of an exception
    flags.nrt = True  # objects are refused by what they leave open, in words that name it
    try:
        made = compiler.compile_extra(typing, target, function, args, types.int32, flags, locals={})
    except Exception as err:  # Numba has many; what they say is for the author
        raise CompileError(f"{function.__name__}: Numba cannot compile it: {err}") from err
    made.library._optimize_final_module = lambda: None  # it would be for this machine's processor; see bitcode
    made.library.finalize()  # brings in the functions that it calls
    return made.library.get_llvm_str(), made.fndesc.llvm_func_name


def _entry(name, args):
    """The text of wherry_main, which calls the inner function as Numba does."""
    values, kinds, least = ["ptr %result", "ptr %raised"], ["ptr", "ptr"], 0
    for arg in args:
        if isinstance(arg, types.Record):
            least = arg.size
            values.append("ptr %payload")
            kinds.append("ptr")
        else:  # an array: owner, parent, elements, bytes of one, address, shape, strides
            values += ["ptr null", "ptr null", "i64 %bytes", "i64 1", "ptr %payload", "i64 %bytes", "i64 1"]
            kinds += ["ptr", "ptr", "i64", "i64", "ptr", "i64", "i64"]
    return f"""
declare i32 @"{name}"({", ".join(kinds)})

define i32 @{ENTRY}(ptr %payload, i32 %size) {{
  %short = icmp ult i32 %size, {least}
  br i1 %short, label %refuse, label %run
refuse:
  ret i32 {STATUSES["ERR_ARGUMENT"]}
run:
  %result = alloca i32
  %raised = alloca ptr
  store i32 0, ptr %result
  store ptr null, ptr %raised
  %bytes = zext i32 %size to i64
  %end = call i32 @"{name}"({", ".join(values)})
  %good = icmp sle i32 %end, 0
  %status = load i32, ptr %result
  %answer = select i1 %good, i32 %status, i32 {RAISED}
  ret i32 %answer
}}
"""


def _roots(module):
    """Has a module's calls of the C library's square roots be LLVM's, which elements have."""
    for value in module.functions:
        if value.is_declaration and value.name in ROOTS:
            kind, root = ROOTS[value.name]
            value.name += ".instruction"  # under its own, LLVM would take it for the C library's
            module.link_in(llvm.parse_assembly(f"""
declare {kind} @{root}({kind})

define {kind} @{value.name}({kind} %x) {{
  %root = call {kind} @{root}({kind} %x)
  ret {kind} %root
}}
"""))


@global_compiler_lock
def bitcode(text, name, args, target):
    """Bitcode for a processor, and the host calls that it uses."""
    triple = target + "-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic")
    module = llvm.parse_assembly(text)
    module.link_in(llvm.parse_assembly(_entry(name, args)))
    _roots(module)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.name = "function"
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration and value.name != ENTRY:
            value.linkage = llvm.Linkage.internal
            value.visibility = "default"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    module.verify()
    return module.as_bitcode(), _calls(module)


def _calls(module):
    """The host calls of a module. Whatever else it leaves open is refused."""
    used, foreign, unequal = [], [], []
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration or value.name in HELPERS:
            continue
        if value.name.startswith("llvm."):
            if _intrinsic(value.name) not in INTRINSICS:
                unequal.append(_intrinsic(value.name))
            continue
        call = value.name.removeprefix(PREFIX)
        if value.name.startswith(PREFIX) and call in CALLS:
            used.append(call)
        else:
            foreign.append(value.name)
    if foreign:
        raise CompileError("it needs " + ", ".join(sorted(foreign)) + ", which no element has: a function is linked to host calls "
                           "and nothing else. New arrays, lists, texts and exceptions with values come from Python; use "
                           "wherry.record, wherry.window and wherry.scratch")
    if unequal:
        raise CompileError("it needs " + ", ".join(sorted(unequal)) + ", and no element runs what another processor may answer differently. "
                           "Roots, absolute values and roundings are the same everywhere, and so is ** with a constant whole number")
    if any(i.opcode == "frem" for f in module.functions for block in f.blocks for i in block.instructions):
        raise CompileError("it takes the remainder of floats (%, //, divmod or fmod), which no element has: compute with whole numbers, "
                           "or write x - y * np.floor(x / y)")
    return sorted(used)


def _intrinsic(name):
    """The name of an intrinsic without its types: llvm.sqrt.f64 is sqrt."""
    parts = name.removeprefix("llvm.").split(".")
    while len(parts) > 1 and re.fullmatch(r"(v[0-9]+)?(p[0-9]*|i[0-9]+|f[0-9]+)", parts[-1]):
        parts.pop()
    return ".".join(parts)
