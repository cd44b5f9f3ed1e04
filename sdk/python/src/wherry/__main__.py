"""python -m wherry FILE.py: makes an image of each function of a file that wherry.function decorates, beside the file."""

import argparse
import os
import runpy
import sys
import traceback

from . import TARGETS, CompileError, Function
from .schema import SchemaError


def functions(path):
    """The functions of a file, which is run for that. What else goes wrong there is Python's to say."""
    try:
        return [f for f in runpy.run_path(path).values() if isinstance(f, Function)]
    except SchemaError as err:
        line = next(at.lineno for at in reversed(traceback.extract_tb(err.__traceback__)) if at.filename == path)
        raise CompileError(f"line {line}: {err}") from None


def paths(made, output):
    """Where the images of functions go: into a folder, or the only one into a file. Another name is refused."""
    if output.endswith(".wfn") and not os.path.isdir(output):
        if len(made) > 1:
            raise CompileError(f"-o {output} is one file, for one function, and there are {len(made)}: name a folder")
        return [output]
    if not os.path.isdir(output):
        raise CompileError(f"-o {output} is no folder: make it, or name a file that ends in .wfn, for one function")
    return [os.path.join(output, f.__name__ + ".wfn") for f in made]


def main():
    parser = argparse.ArgumentParser(prog="python -m wherry", description="Make images (.wfn) of the functions in a Python file.")
    parser.add_argument("file")
    parser.add_argument("-o", "--output", help="folder for the images (default: the file's), or a name that ends in .wfn for the image of the only function")
    parser.add_argument("--targets", default=",".join(TARGETS), help="processors, with commas between (default: %(default)s)")
    parser.add_argument("--program", default="wherry", help="the wherry command (default: %(default)s)")
    args = parser.parse_args()
    try:
        open(args.file, "rb").close()
    except OSError as err:
        print(f"{args.file}: {err.strerror}", file=sys.stderr)
        return 2
    try:
        made = functions(args.file)
        if not made:
            raise CompileError("no function here is decorated by wherry.function")
        to = paths(made, args.output or os.path.dirname(os.path.abspath(args.file)))
    except CompileError as err:
        print(f"{args.file}: {err}", file=sys.stderr)
        return 2
    for f, path in zip(made, to):
        try:
            f.pack(path, args.targets.split(","), args.program)
        except (CompileError, OSError) as err:
            print(f"{args.file}: {err}", file=sys.stderr)
            return 1
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
