"""The scripts that make models with experts: bench/make_synthetic.py and tools/make_moe_from_dense.py."""
import math
import pathlib
import subprocess
import sys
import unittest

from cli import LLAMA, CliTest
from gguf import Gguf

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SYNTHETIC = ROOT / "bench" / "make_synthetic.py"
TWIN = ROOT / "tools" / "make_moe_from_dense.py"


class ScriptTest(CliTest):
    def script(self, path, *arguments):
        return subprocess.run([sys.executable, str(path), *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, cwd=self.folder)

    def made(self, path, *arguments):
        done = self.script(path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)

    def refused(self, words, path, *arguments):
        done = self.script(path, *arguments)
        self.assertNotEqual(done.returncode, 0, arguments)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def logits(self, model, *options):
        ids, out = self.folder / "ids", self.folder / "logits.gguf"
        ids.write_text("1 2 3 100 5 6 7 8", encoding="utf-8")
        self.ok("logits", model, "--tokens", ids, "-o", out, "-t", 2, *options)
        return Gguf(out).rows("logits")


class Synthetic(ScriptTest):
    def check_model(self, shape, *options):
        model = self.folder / "model.gguf"
        self.made(SYNTHETIC, shape, model, "--n-layer", 1, "--n-vocab", 512, *options)
        rows = self.logits(model)
        self.assertEqual((len(rows), len(rows[0])), (8, 512))
        for row in rows:
            self.assertTrue(all(math.isfinite(value) for value in row))
            self.assertTrue(0.1 < max(row) < 100, max(row))

    def test_dense(self):
        self.check_model("dense-0.8b", "--dtype", "q4_k")

    def test_moe(self):
        self.check_model("moe-4b", "--n-expert", 8, "--n-used", 2, "--dtype", "q4_0", "--expert-dtype", "q6_k")

    def test_gpt_oss(self):
        self.check_model("gpt-oss", "--n-expert", 4, "--n-used", 2)

    def test_refusals(self):
        self.refused("whole blocks", SYNTHETIC, "gpt-oss", "x.gguf", "--dtype", "Q4_K")
        self.refused("more experts", SYNTHETIC, "moe-4b", "x.gguf", "--n-used", 65)
        self.refused("does not fit", SYNTHETIC, "dense-0.8b", "x.gguf", "--n-expert", 4)
        self.refused("make_synthetic: ", SYNTHETIC, "moe-4b", "absent/x.gguf", "--n-layer", 1)


class Twins(ScriptTest):
    def test_twin_is_the_dense_model(self):
        twin = self.folder / "twin.gguf"
        dense = self.logits(LLAMA, "--precision", "f32")
        for options in ([], ["--overflow", 4], ["--overflow", 12, "--exps-scale"], ["--down-f32", "--overflow", 9]):
            self.made(TWIN, LLAMA, twin, "--experts", 2, *options)
            for expected, got in zip(dense, self.logits(twin, "--precision", "f32")):
                self.assertLess(max(abs(a - b) for a, b in zip(expected, got)), 1e-4, options)

    def test_refusals(self):
        self.refused("power of two", TWIN, LLAMA, "x.gguf", "--experts", 3)
        self.refused("do not cut", TWIN, LLAMA, "x.gguf", "--experts", 1024)
        self.refused("not exact", TWIN, LLAMA, "x.gguf", "--overflow", 40)
        self.refused("more than", TWIN, LLAMA, "x.gguf", "--used", 8)
        self.refused("not a GGUF file", TWIN, __file__, "x.gguf")
        self.refused("absent", TWIN, "absent", "x.gguf")


if __name__ == "__main__":
    unittest.main()
