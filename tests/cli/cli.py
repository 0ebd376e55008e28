"""What all tests of the program share. The program is $MOTE (run by $MESON_EXE_WRAPPER, where that is set)."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import unittest

from gguf import Gguf

MOTE = shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")) + [os.environ["MOTE"]]
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
MODELS = DATA / "models"
LLAMA = MODELS / "llama.gguf"
BOS, EOS = 262, 263  # of the tiny models
TEMPLATE = ("<|bos|>{% for m in messages %}{{ m.role }}:{{ m.content }}<|eos|>{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


def environment(**changes):
    """The environment of a run: nothing of the tester's own settings reaches the program."""
    env = {k: v for k, v in os.environ.items() if k not in ("MOTE_ISA", "NO_COLOR", "TERM")}
    env.update(changes)
    return env


def usual_signals():
    """For preexec_fn: a background job of a shell, nohup and the like have signals ignored, which programs inherit."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class CliTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_mote(self, *args, stdin=b"", env=None, timeout=120, **more):
        return subprocess.run([*MOTE, *map(str, args)], input=stdin, capture_output=True, timeout=timeout, check=False,
                              env=env or environment(), **more)

    def ok(self, *args, **more):
        """Runs the program, which must succeed and say nothing on standard error (unless -v); returns what it answers."""
        done = self.run_mote(*args, **more)
        self.assertEqual(done.returncode, 0, done)
        if "-v" not in args:
            self.assertEqual(done.stderr, b"", done)
        return done.stdout

    def same(self, a, b, what=None):
        """Asserts that long lists are equal, without printing them."""
        self.assertTrue(a == b, what or "they differ")

    def text(self, *args, **more):
        return self.ok(*args, **more).decode()

    def fails(self, code, *args, mentions=(), stdin=b"", **more):
        """Runs the program, which must end with this code, an error that mentions all, and nothing on standard output."""
        done = self.run_mote(*args, stdin=stdin, **more)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(done.stdout, b"", done)
        message = done.stderr.decode()
        for word in [mentions] if isinstance(mentions, str) else mentions:
            self.assertIn(word, message)
        return message

    def wrong_usage(self, *args, mentions=()):
        return self.fails(2, *args, mentions=mentions)

    def verbose(self, *args, **more):
        """Runs with -v; returns standard error."""
        done = self.run_mote(*args, "-v", **more)
        self.assertEqual(done.returncode, 0, done)
        return done.stderr.decode()

    def model(self, base=LLAMA, name="model.gguf", drop=(), **keys):
        """A variant of a tiny model: keys with "__" for "." are set to (type, value)."""
        gguf = Gguf(base)
        for key in drop:
            del gguf.keys[key]
        for key, value in keys.items():
            gguf.keys[key.replace("__", ".")] = value
        return gguf.write(self.folder / name)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def ids(self, text, *args, model=LLAMA):
        return [int(i) for i in self.text("tokenize", model, "--ids", *args, "--", text).split()]

    def logits(self, tokens, *args, model=LLAMA, env=None):
        """The rows of logits after each of tokens."""
        out = self.folder / "logits.gguf"
        listed = self.write("tokens.txt", " ".join(map(str, tokens)))
        self.ok("logits", model, "--tokens", listed, "-o", out, *args, env=env)
        return Gguf(out).rows("logits")

    def greedy(self, tokens, n, *args, model=LLAMA):
        """The n tokens that are the likeliest, one after another."""
        tokens, start = list(tokens), len(tokens)
        for _ in range(n):
            row = self.logits(tokens, *args, model=model)[-1]
            tokens.append(max(range(len(row)), key=row.__getitem__))
        return tokens[start:]

    def decode(self, ids, model=LLAMA):
        return self.ok("tokenize", model, "--decode", " ".join(map(str, ids)))


def counts(stderr):
    """(tokens of the prompt, tokens of the answer) from what run -v says."""
    return tuple(int(re.search(rf"{what}: (\d+) tokens", stderr)[1]) for what in ("prompt", "answer"))


def visible(data):
    """What can be compared of a text whose bytes are random: the ASCII in it."""
    return bytes(b for b in data if b < 0x80)


def json_lines(data):
    return [json.loads(line) for line in data.decode().splitlines()]
