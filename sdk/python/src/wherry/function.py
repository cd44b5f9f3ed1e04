"""The decorator, and what becomes of what it decorates."""

import inspect
import json
import os
import subprocess
import tempfile

from . import compile, schema
from .abi import VERSION
from .compile import TARGETS, CompileError


class Function:
    """A Python function that travels. It is compiled when it is first asked for, and never run here."""

    def __init__(self, python, manifest, params):
        self._python, self._manifest, self._params = python, manifest, params
        self._inner = None
        self.__name__, self.__doc__ = python.__name__, python.__doc__

    def __call__(self, *args):
        raise TypeError(f"{self.__name__} is a function for wherry: pack it, and run it where the data is (wherry fn run)")

    def bitcode(self, target):
        """LLVM bitcode for a processor (see TARGETS), and the host calls that it uses."""
        args = compile.argument_types(self._python, self._params)
        if self._inner is None:
            self._inner = compile.inner(self._python, args)
        try:
            return compile.bitcode(*self._inner, args, target)
        except CompileError as err:
            raise CompileError(f"{self.__name__}: {err}") from None

    def manifest(self, imports):
        """The manifest as JSON."""
        return json.dumps({**self._manifest, "imports": imports}, indent=1)

    def pack(self, path, targets=TARGETS, program="wherry"):
        """Write an image (.wfn) with bitcode for each processor, by `wherry fn pack`."""
        with tempfile.TemporaryDirectory(prefix="wherry-") as folder:
            files, imports = [], set()
            for target in targets:
                code, used = self.bitcode(target)
                files.append(os.path.join(folder, f"{target}.bc"))
                imports.update(used)
                with open(files[-1], "wb") as file:
                    file.write(code)
            manifest = os.path.join(folder, "manifest.json")
            with open(manifest, "w", encoding="utf-8") as file:
                file.write(self.manifest(sorted(imports)))
            done = subprocess.run([program, "fn", "pack", *files, "--targets", ",".join(targets), "--manifest", manifest,
                                   "-o", os.fspath(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{self.__name__}: {done.stderr.strip()}")


def function(*, name=None, start=None, owner_param=None, params=None, result=None, result_form=None, rows=None, ranges=False,
             windows=(), constants=None, limits=None):
    """Make a Python function one that travels. The arguments are the manifest's fields (docs/image.md); schemas are
    {"name": "u64", …} or {"name": {"type": "u64", "default": "1", "help": …}, …}.

    The function takes its parameters, a record with the fields of params, and if it has a second argument the payload's
    bytes; without params it takes the payload's bytes, or nothing. It returns a status, 0 if all went well.
    """
    def make(python):
        m = {"name": name or python.__name__.replace("_", "-"), "abi": VERSION}
        if python.__doc__:
            m["description"] = inspect.cleandoc(python.__doc__)
        for key, value in (("start", start), ("owner_param", owner_param), ("result_form", result_form), ("limits", limits)):
            if value is not None:
                m[key] = value
        for key, value in (("params", params), ("result", result), ("rows", rows), ("constants", constants)):
            if value is not None:
                m[key] = {"fields": schema.fields(value)}
        if ranges:
            m["ranges"] = True
        if windows:
            m["windows"] = [w if isinstance(w, dict) else {"name": w} for w in windows]
        return Function(python, m, schema.dtype(params) if params is not None else None)
    return make
