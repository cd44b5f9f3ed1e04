"""python -m wherry FILE.py: makes an image of each function of a file that wherry.function decorates, beside the file."""

import argparse
import os
import runpy
import sys

from . import TARGETS, CompileError, Function


def main():
    parser = argparse.ArgumentParser(prog="python -m wherry", description="Make images (.wfn) of the functions in a Python file.")
    parser.add_argument("file")
    parser.add_argument("-o", "--output", help="folder for the images (default: the file's)")
    parser.add_argument("--targets", default=",".join(TARGETS), help="processors, with commas between (default: %(default)s)")
    parser.add_argument("--program", default="wherry", help="the wherry command (default: %(default)s)")
    args = parser.parse_args()
    folder = args.output or os.path.dirname(os.path.abspath(args.file))
    try:
        open(args.file, "rb").close()
    except OSError as err:
        print(f"{args.file}: {err.strerror}", file=sys.stderr)
        return 2
    made = [f for f in runpy.run_path(args.file).values() if isinstance(f, Function)]
    if not made:
        print(f"{args.file} has no function that wherry.function decorates", file=sys.stderr)
        return 2
    for f in made:
        path = os.path.join(folder, f.__name__ + ".wfn")
        try:
            f.pack(path, args.targets.split(","), args.program)
        except (CompileError, OSError) as err:
            print(f"{args.file}: {err}", file=sys.stderr)
            return 1
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
