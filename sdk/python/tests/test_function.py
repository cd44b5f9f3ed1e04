"""What becomes of functions: the code for each processor, the manifest, and what is refused. Run by go test ./node/nativetest."""

import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import llvmlite.binding as llvm
import numba
import numpy as np

import wherry

ROW = wherry.dtype({"time": "i64", "name": "str", "code": "u8", "share": "f32", "key": "bytes5"})
LINE = wherry.dtype({"n": "u32"})


@wherry.function(params={"first": "u64", "scale": {"type": "f64", "default": "2"}}, result={"n": "u32"},
                 rows={"time": "i64"}, ranges=True, windows=["rows", {"name": "out", "writable": True}],
                 limits={"scratch_bytes": 65536})
def every_call(at, payload):
    """Uses all there is.

    A second line.
    """
    rows = wherry.window(0, ROW)
    out = wherry.window(1, np.float64)
    seen = wherry.scratch(1024, np.uint8)
    status, first, count = wherry.shard_rows(wherry.self_index())
    element, local = wherry.owner(at.first)
    total = 0.0
    for i in range(len(rows)):
        total += rows[i].share * at.scale
        seen[rows[i].code] = 1
    for i in range(len(out)):
        out[i] = total
    line = wherry.record(LINE)
    line.n = len(payload) // len(seen)
    status = wherry.get(element, 0, local * 8, line) + wherry.put(element, 1, 0, total)
    if wherry.get_near(element, 0, local * 8, line) == wherry.ERR_FAR:
        return wherry.forward(element, payload)
    code, old = wherry.atomic(0, 1, 0, 1, 8, first, 0)
    wherry.log("at work")
    if wherry.remaining() < wherry.now() and wherry.row(0, count) > old + wherry.random():
        return wherry.forward(element, at)
    if wherry.fork(wherry.elements() - 1, payload) != wherry.OK:
        return wherry.reply_part(line)
    return status + code + wherry.reply(line)


class Made(unittest.TestCase):
    def test_every_call_for_every_processor(self):
        for target in wherry.TARGETS:
            code, used = every_call.bitcode(target)
            self.assertEqual(used, sorted(["atomic", "elements", "fork", "forward", "get", "get_near", "log", "now", "owner", "put", "random",
                                           "remaining", "reply", "reply_part", "row", "scratch", "self", "shard_rows", "window"]))
            module = llvm.parse_bitcode(code)
            self.assertEqual(module.triple, target + "-unknown-linux-gnu")
            self.assertEqual([f.name for f in module.functions if not f.is_declaration], ["wherry_main"])
            self.assertFalse([v.name for v in module.global_variables if v.is_declaration])
            self.assertNotIn("x86", str(module).replace("x86_64", ""))

    def test_manifest(self):
        m = json.loads(every_call.manifest(["reply"]))
        self.assertEqual(m["name"], "every-call")
        self.assertEqual(m["description"], "Uses all there is.\n\nA second line.")
        self.assertEqual(m["params"]["fields"][1], {"name": "scale", "type": "f64", "default": "2"})
        self.assertEqual(m["windows"], [{"name": "rows"}, {"name": "out", "writable": True}])
        self.assertEqual((m["ranges"], m["imports"], m["limits"]), (True, ["reply"], {"scratch_bytes": 65536}))

    def test_records_lie_as_in_c(self):
        self.assertEqual([ROW.fields[n][1] for n in ROW.names], [0, 8, 16, 20, 24])
        self.assertEqual(ROW.itemsize, 32)


    def test_derived(self):
        k = wherry.dtype({"least": "u64"})

        @wherry.function(constants={"least": "u64"}, params={"least": "u64"})
        def derives(at):
            own = wherry.record(k)
            if wherry.constants(own) == wherry.OK:
                return wherry.reply(own)
            f = wherry.derive(at)
            if f < 0:
                return f
            if wherry.fork_as(f, 0, own) != wherry.OK:
                return wherry.ERR_LIMIT
            return wherry.forward_as(f, 0, own)
        self.assertEqual(derives.bitcode("x86_64")[1], ["constants", "derive", "fork", "forward", "reply"])
        self.assertEqual(json.loads(derives.manifest([]))["constants"], {"fields": [{"name": "least", "type": "u64"}]})

    def test_helpers_of_the_authors(self):
        @numba.njit
        def least(rows):
            best = np.uint64(1 << 63)
            for r in rows:
                best = min(best, r)
            return best

        @wherry.function()
        def uses():
            return wherry.reply(least(wherry.window(0, np.uint64)))
        self.assertEqual(uses.bitcode("aarch64")[1], ["reply", "window"])


    def test_what_is_the_same_everywhere(self):
        @wherry.function(params={"x": "f64", "z": "f32"})
        def computes(at):
            a = math.sqrt(at.x) + np.sqrt(at.x) + np.sqrt(at.z) + math.fabs(at.x) + abs(at.z) + round(at.x) + at.x ** 3
            b = math.floor(at.x) + math.ceil(at.x) + math.trunc(at.x) + math.copysign(a, at.x) + min(a, at.x) + max(a, at.x)
            return wherry.reply(a + b)
        for target in wherry.TARGETS:
            code, used = computes.bitcode(target)
            self.assertEqual(used, ["reply"])
            open_ = {f.name for f in llvm.parse_bitcode(code).functions if f.is_declaration}
            self.assertLessEqual({"llvm.sqrt.f64", "llvm.sqrt.f32", "wherry_reply"}, open_)
            self.assertFalse({f for f in open_ if not f.startswith(("llvm.", "wherry_"))})


class Refused(unittest.TestCase):
    def refuses(self, python, text, **manifest):
        with self.assertRaisesRegex(wherry.CompileError, text):
            wherry.function(**manifest)(python).bitcode("x86_64")

    def test_objects(self):
        def makes_a_list():
            return len([i for i in range(wherry.elements())])

        def makes_an_array():
            return len(np.zeros(wherry.elements()))
        self.refuses(makes_a_list, "makes_a_list: it needs NRT_.*use wherry.record")
        self.refuses(makes_an_array, "makes_an_array: it needs NRT_")

    def test_python(self):
        def prints():
            print(wherry.elements())
            return 0
        self.refuses(prints, "prints: it needs numba_gil_ensure, which no element has")

    def test_what_processors_differ_in(self):
        for python, text in ((lambda at: wherry.reply(math.sin(at.x)), "it needs sin, and no element runs"),
                             (lambda at: wherry.reply(at.x ** at.y), "it needs pow, and no element runs"),
                             (lambda at: wherry.reply(at.x % at.y), "the remainder of floats"),
                             (lambda at: wherry.reply(at.x // at.y), "the remainder of floats"),
                             (lambda at: wherry.reply(math.hypot(at.x, at.y)), "it needs hypot, which no element has")):
            self.refuses(python, text, params={"x": "f64", "y": "f64"})

    def test_arguments(self):
        self.refuses(lambda a, b: 0, "2 arguments: at most one is")
        self.refuses(lambda a, b, c: 0, "3 arguments: at most two are", params={"n": "u64"})

    def test_what_cannot_be_sent(self):
        def sends_a_tuple():
            return wherry.reply((1, 2))

        def strided():
            return wherry.reply(wherry.window(0, np.uint8)[::2])
        self.refuses(sends_a_tuple, "a record, an array, a number or a constant text")
        self.refuses(strided, "does not lie in one piece")

    def test_types(self):
        with self.assertRaisesRegex(ValueError, "no type is called 'u9'"):
            wherry.dtype({"n": "u9"})

    def test_is_not_run_here(self):
        with self.assertRaisesRegex(TypeError, "where the data is"):
            every_call()

    def test_pack_says_why(self):
        with self.assertRaisesRegex(OSError, "nonesuch"):
            every_call.pack("x.wfn", ["x86_64"], "nonesuch")

    def test_no_such_file(self):
        self.assertEqual(command("nosuch.py"), (2, "", "nosuch.py: No such file or directory\n"))

    def test_schemas_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = written(folder, "import wherry\n\n@wherry.function(params={'n': 'u9'})\ndef f(at):\n    return 0\n")
            status, out, err = command(path)
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, f"^{path}: line 3: no type is called 'u9': .*\n$")


class Output(unittest.TestCase):
    def test_where_images_go(self):
        with tempfile.TemporaryDirectory() as folder:
            one = written(folder, "import wherry\n@wherry.function()\ndef f():\n    return 0\n")
            two = written(folder, "import wherry\n@wherry.function()\ndef f():\n    return 0\n@wherry.function()\ndef g():\n    return 1\n", "two.py")
            inside = functools.partial(os.path.join, folder)
            for file, output, want in ((one, None, [inside("f.wfn")]), (one, folder, [inside("f.wfn")]), (one, inside("x.wfn"), [inside("x.wfn")]),
                                       (two, None, [inside("f.wfn"), inside("g.wfn")])):
                where = ["-o", output] if output else []  # `true` makes no image, and is content
                self.assertEqual(command(file, *where, "--targets", "x86_64", "--program", "true"), (0, "".join(p + "\n" for p in want), ""))
            for file, output, why in ((two, inside("x.wfn"), "is one file, for one function, and there are 2"), (one, inside("nonesuch"), "is no folder")):
                status, out, err = command(file, "-o", output)
                self.assertEqual((status, out), (2, ""))
                self.assertRegex(err, f"^{file}: -o {output} {why}")


def written(folder, text, name="one.py"):
    """A file with a text."""
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)
    return file.name


def command(*args):
    """What python -m wherry does: its status, and what it writes."""
    ran = subprocess.run([sys.executable, "-m", "wherry", *args], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


if __name__ == "__main__":
    unittest.main()
