"""What becomes of functions: the code for each processor, the manifest, and what is refused. Run by go test ./sdk."""

import json
import subprocess
import sys
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
        ran = subprocess.run([sys.executable, "-m", "wherry", "nosuch.py"], capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (2, "", "nosuch.py: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
