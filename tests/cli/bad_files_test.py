"""Files that are no model, or a broken one: an error that says what is wrong, never a crash, a hang, or silent garbage.

$MOTE_GGUF_BAD is the folder that tools/make_bad_gguf.py filled; fixtures/gguf-bad of $MOTE_SHARED is tried too.
"""
import json
import math
import os
import pathlib
import resource
import signal
import subprocess
import unittest

from cli import LLAMA, MOTE, CliTest, environment, usual_signals
from gguf import Gguf

FOLDERS = [pathlib.Path(os.environ["MOTE_GGUF_BAD"]),
           pathlib.Path(os.environ.get("MOTE_SHARED", LLAMA.parents[4] / "shared")) / "fixtures" / "gguf-bad"]
HANG = 60  # seconds


def cases(folders=FOLDERS):
    for folder in folders:
        manifest = folder / "manifest.jsonl"
        if manifest.exists():
            for line in manifest.read_text(encoding="utf-8").splitlines():
                yield folder, json.loads(line)
        else:
            print(f"skipped: {folder}: it is not part of the repository")


class BadGguf(CliTest):
    def logits_of(self, file):
        out = self.folder / "out.gguf"
        out.unlink(missing_ok=True)
        done = self.run_mote("logits", file, "--tokens", "-", "-o", out, "-t", "1", stdin=b"1 5 9", timeout=HANG)
        return done, out

    def check(self, file, case):
        done, out = self.logits_of(file)
        message = done.stderr.decode()
        self.assertIn(done.returncode, (0, 1), done)
        if done.returncode == 0:
            self.assertIn(case["must"], ("accept", "either"), case)
            values = Gguf(out).floats("logits")
            self.assertTrue(values and all(math.isfinite(x) for x in values), case)
            return
        self.assertIn(case["must"], ("error", "either"), (case, message))
        self.assertFalse(out.exists(), case)
        self.assertTrue(message.startswith("mote: error: ") and message.endswith("\n"), (case, message))
        self.assertEqual(message.count("\n"), 1, (case, message))
        words = [word.lower() for word in case["mentions"]]
        self.assertTrue(not words or any(word in message.lower() for word in words), (case, message))

    def test_as_models(self):
        for folder, case in cases():
            with self.subTest(file=case["file"], folder=str(folder)):
                self.check(folder / case["file"], case)

    def test_other_commands(self):
        """Nothing reads such a file without care: whatever a command does with it, it ends by itself."""
        for folder, case in cases(FOLDERS[:1]):
            for args in (["inspect"], ["inspect", "--tensors"], ["inspect", "--plan"], ["tokenize", "--count"],
                         ["run", "--raw", "-n", "2", "-t", "1", "-p", "a"]):
                with self.subTest(file=case["file"], args=args):
                    text = ["a b"] if args[0] == "tokenize" else []
                    done = self.run_mote(args[0], folder / case["file"], *text, *args[1:], timeout=HANG)
                    self.assertIn(done.returncode, (0, 1), done)
                    self.assertTrue(done.returncode == 0 or done.stderr.startswith(b"mote: error: "), done)
                    done.stdout.decode()
                    if args[0] == "run" and case["must"] == "error":
                        self.assertEqual(done.returncode, 1, case)

    def test_zz_no_large_allocation(self):
        """Of all runs before (by name, this test is the last), none took much memory."""
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 1 << 20, "kB")


class OtherFiles(CliTest):
    COMMANDS = (["run", "-p", "a"], ["inspect"], ["tokenize", "a"], ["perplexity", "--whole"],
                ["bench", "-o", "csv"])

    def refused(self, path, *mentions):
        for command, *rest in self.COMMANDS:
            text = self.fails(1, command, path, *rest, mentions=str(path.name), timeout=HANG).lower()
            self.assertTrue(any(word in text for word in mentions), text)

    def test_none(self):
        self.refused(self.folder / "none.gguf", "no such file")

    def test_directory(self):
        self.refused(self.folder, "directory")

    def test_fifo(self):
        fifo = self.folder / "fifo.gguf"
        os.mkfifo(fifo)
        self.refused(fifo, "fifo", "pipe", "regular")

    def test_device(self):
        self.refused(pathlib.Path("/dev/zero"), "device", "regular")

    def test_no_permission(self):
        model = self.model()
        model.chmod(0)
        if os.access(model, os.R_OK):
            print("skipped: a file without read permission: root may read it")
            return
        self.refused(model, "permission")

    def test_what_downloads_leave_behind(self):
        for name, data, *words in (
                ("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
                 "lfs"),
                ("page.gguf", b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n", "html"),
                ("model.safetensors", (20).to_bytes(8, "little") + b'{"__metadata__":{}} ' + bytes(64), "safetensors"),
                ("empty.gguf", b"", "empty"), ("text.gguf", b"hello, world\n" * 20, "gguf")):
            self.refused(self.write(name, data), *words)

    def test_logits_and_perplexity_of_a_reference(self):
        reference = LLAMA.with_suffix(".golden.gguf")
        self.fails(1, "run", reference, "-p", "a", mentions="token")
        self.fails(1, "logits", reference, "--tokens", reference, "-o", self.folder / "o", mentions="tokenizer")

    def test_cut_short_while_being_read(self):
        model = self.model()
        with subprocess.Popen([*MOTE, "run", str(model), "--raw", "-n", "1"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            # The file is open, its weights are not read, when the program waits for the prompt.
            try:
                process.wait(timeout=1)
                self.fail("it did not wait for its prompt")
            except subprocess.TimeoutExpired:
                os.truncate(model, model.stat().st_size // 2)
            out, error = process.communicate(b"a", timeout=HANG)
            self.assertEqual((process.returncode, out), (1, b""), error)
            self.assertIn(b"cut short", error)


class Streams(CliTest):
    def closed(self, descriptor, *args):
        """Runs the program without a standard stream."""
        return subprocess.run(["sh", "-c", f'exec "$@" {descriptor}', "sh", *MOTE, *map(str, args)], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=HANG)

    def test_closed_streams(self):
        done = self.closed("<&-", "run", LLAMA, "--raw", "-n", "1")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"cannot read standard input", done.stderr)
        done = self.closed(">&-", "run", LLAMA, "--raw", "-p", "a", "-n", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write to standard output", done.stderr)
        done = self.closed("2>&-", "run", LLAMA, "--raw", "-p", "a", "-n", "1", "-v")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout)

    def test_a_file_that_becomes_too_large(self):
        out = self.folder / "out.gguf"
        done = subprocess.run([*MOTE, "logits", str(LLAMA), "--tokens", str(LLAMA.with_suffix(".golden.gguf")), "-o",
                               str(out)], check=False, capture_output=True, env=environment(), timeout=HANG,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
        self.assertEqual((done.returncode, done.stdout), (1, b""), done)
        self.assertIn(b"out.gguf", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])


class Signals(CliTest):
    def endless(self, *args, **more):
        return subprocess.Popen([*MOTE, "run", str(LLAMA), "--raw", "-p", "a", "--ignore-eos", "-c", "1000000",
                                 "--force", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=environment(), preexec_fn=usual_signals, **more)

    def test_interrupt(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.endless() as process:
                self.assertTrue(process.stdout.read(1))  # it streams
                process.send_signal(number)
                process.stdout.read()
                self.assertEqual(process.wait(timeout=HANG), code)
                self.assertEqual(process.stderr.read(), b"")

    def test_interrupt_while_reading_the_prompt(self):
        with subprocess.Popen([*MOTE, "run", str(LLAMA)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment(), preexec_fn=usual_signals) as process:
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=HANG), 130)


if __name__ == "__main__":
    unittest.main()
