"""mote logits: its file's form, and that every option changes what it says (or, for threads and batches, nothing)."""
import os
import signal
import statistics
import subprocess
import unittest

from cli import LLAMA, MODELS, MOTE, CliTest, environment, usual_signals
from gguf import DTYPE_F32, DTYPE_I32, Gguf

GOLDEN = MODELS / "llama.golden.gguf"


def largest_difference(a, b):
    return max(abs(x - y) for row, other in zip(a, b) for x, y in zip(row, other))


class Logits(CliTest):
    def test_the_file(self):
        out = self.folder / "out.gguf"
        self.assertEqual(self.ok("logits", LLAMA, "--tokens", GOLDEN, "-o", out), b"")
        answer, golden = Gguf(out), Gguf(GOLDEN)
        self.assertEqual(list(answer.tensors), ["tokens", "logits"])
        self.assertEqual(answer.tensors["tokens"][:2], ([48], DTYPE_I32))
        self.assertEqual(answer.tensors["logits"][:2], ([288, 48], DTYPE_F32))
        self.assertEqual(answer.ints("tokens"), golden.ints("tokens"))
        self.assertEqual(os.listdir(self.folder), ["out.gguf"])

    def test_ids_as_text(self):
        tokens = Gguf(GOLDEN).ints("tokens")
        expected = self.logits(tokens)
        for text in (" ".join(map(str, tokens)), ",\n".join(map(str, tokens)), str(tokens), "\t".join(map(str, tokens))):
            out = self.folder / "out.gguf"
            self.ok("logits", LLAMA, "--tokens", "-", "-o", out, stdin=text.encode())
            self.same(Gguf(out).rows("logits"), expected)
            self.ok("logits", "-m", LLAMA, "--tokens", self.write("ids.txt", text), "-o", out)
            self.same(Gguf(out).rows("logits"), expected)

    def test_precision(self):
        golden = Gguf(GOLDEN)
        rows = golden.rows("logits")
        deviation = statistics.pstdev(x for row in rows for x in row)
        exact = self.logits(golden.ints("tokens"), "--precision", "f32")
        usual = self.logits(golden.ints("tokens"))
        self.assertLess(largest_difference(exact, rows), 2e-4 * deviation)
        self.assertLess(largest_difference(usual, rows), 3 * 1.7e-2)
        self.assertGreater(largest_difference(usual, rows), largest_difference(exact, rows))
        self.same(self.logits(golden.ints("tokens"), "--precision", "default"), usual)

    def test_threads_batches_and_kernels_change_no_bit(self):
        tokens = Gguf(GOLDEN).ints("tokens")
        expected = self.logits(tokens)
        for args in (["-b", "1"], ["-b", "7"], ["--batch", "48"], ["-t", "1"], ["-t", "2"], ["-t", "3"],
                     ["-t", "8", "-b", "5"], ["-c", "64"]):
            self.same(self.logits(tokens, *args), expected, args)
        kernels = self.text("--version").split("kernels of this machine: ")[1].strip(")\n").split()
        self.assertIn("c", kernels)
        for isa in kernels:
            self.same(self.logits(tokens, env=environment(MOTE_ISA=isa)), expected, isa)

    def test_kv(self):
        model = MODELS / "qwen3.gguf"  # Q8_0 wants heads of 32
        tokens = Gguf(MODELS / "qwen3.golden.gguf").ints("tokens")
        expected = self.logits(tokens, model=model)
        self.same(self.logits(tokens, "--kv", "f16", model=model), expected)
        for kv in ("f32", "q8_0"):
            rows = self.logits(tokens, "--kv", kv, model=model)
            self.assertFalse(rows == expected)
            self.assertLess(largest_difference(rows, expected), 0.5)
            self.same(self.logits(tokens, "-ctk", kv, "-ctv", kv, model=model), rows)
        self.fails(1, "logits", LLAMA, "--tokens", GOLDEN, "-o", self.folder / "o", "--kv", "q8_0", mentions="32")

    def test_want_last(self):
        tokens = Gguf(GOLDEN).ints("tokens")
        rows = self.logits(tokens, "--want", "last")
        self.same(rows, self.logits(tokens, "--want", "all")[-1:])

    def test_wrong_tokens(self):
        out = self.folder / "out.gguf"
        for text, words in (("1 2 x", "no token id"), ("288", ["288", "vocabulary"]), ("-1", "no token id"), ("", "no tokens"),
                            ("99999999999", "no token id"), ("1;2", "no token id")):
            self.fails(1, "logits", LLAMA, "--tokens", "-", "-o", out, stdin=text.encode(), mentions=words)
        self.fails(1, "logits", LLAMA, "--tokens", LLAMA, "-o", out, mentions="tokens")
        wrong = Gguf()
        wrong.tensors["tokens"] = ([2], DTYPE_F32, bytes(8))
        self.fails(1, "logits", LLAMA, "--tokens", wrong.write(self.folder / "w.gguf"), "-o", out, mentions="i32")
        self.fails(1, "logits", LLAMA, "--tokens", self.folder / "none", "-o", out, mentions="none")
        self.fails(1, "logits", LLAMA, "--tokens", GOLDEN, "-o", out, "-c", "47", mentions=["48", "47"])
        self.assertFalse(out.exists())

    def test_never_over_an_input(self):
        model, ids = self.model(), self.write("ids.txt", "1 2 3")
        before = model.read_bytes()
        for out in (model, ids):
            self.wrong_usage("logits", model, "--tokens", ids, "-o", out, mentions="overwrite")
        self.assertEqual((model.read_bytes(), ids.read_bytes()), (before, b"1 2 3"))

    def test_an_older_file_is_replaced(self):
        out = self.write("out.gguf", "old")
        self.ok("logits", LLAMA, "--tokens", GOLDEN, "-o", out)
        self.assertEqual(len(Gguf(out).ints("tokens")), 48)

    def test_a_full_disk(self):
        self.fails(1, "logits", LLAMA, "--tokens", GOLDEN, "-o", "/dev/full", mentions="/dev/full")

    def test_an_interrupt_leaves_no_file(self):
        ids = self.write("ids.txt", "1 " * 20000)
        out = self.folder / "out.gguf"
        with subprocess.Popen([*MOTE, "logits", str(LLAMA), "--tokens", str(ids), "-o", str(out), "-t", "1", "-b", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                              preexec_fn=usual_signals) as process:
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=30), 130, process.stderr.read())
            self.assertEqual(process.stderr.read(), b"")
        self.assertEqual(os.listdir(self.folder), ["ids.txt"])


if __name__ == "__main__":
    unittest.main()
