"""The program with SmolLM2: what tests/data/real holds was computed by another program in float64 (see its README).

The model is smollm2.gguf in $MOTE_CACHE ($XDG_CACHE_HOME/mote, ~/.cache/mote), where `make test` puts it.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from cli import DATA, CliTest
from gguf import Gguf

REAL = DATA / "real"
ROOT = DATA.parent.parent


def cache():
    if "MOTE_CACHE" in os.environ:
        return pathlib.Path(os.environ["MOTE_CACHE"])
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "mote"


MODEL = cache() / "smollm2.gguf"


class Real(CliTest):
    def setUp(self):
        super().setUp()
        self.assertTrue(MODEL.exists(), f"{MODEL} is not there: this suite is for machines that fetched it")

    def test_the_chat_template(self):
        chat = REAL / "texts" / "chat.json"
        case = json.dumps({"input": {"messages": json.loads(chat.read_text(encoding="utf-8")),
                                     "add_generation_prompt": True}}).encode()
        rendered = (REAL / "texts" / "chat.txt").read_text(encoding="utf-8")
        self.assertEqual(json.loads(self.ok("template", MODEL, "--jsonl", stdin=case))["output"], rendered)
        ids = self.ids(rendered, "--special", model=MODEL)
        self.assertEqual(ids, Gguf(REAL / "smollm2-chat.gguf").ints("tokens"))

    def test_an_answer_is_that_of_the_rendered_prompt(self):
        question = "Name three colours of the rainbow."
        rendered = self.text("template", MODEL, stdin=json.dumps([{"role": "user", "content": question}]).encode())
        args = ("--temp", "0", "-n", "24")
        answer = self.ok("run", MODEL, "-p", question, *args)
        self.assertEqual(answer, self.ok("run", MODEL, "--raw", "-f", "-", *args, stdin=(rendered + "\n").encode()))
        self.assertIn(b"rainbow", answer)

    def test_counting_runs_free(self):
        golden = Gguf(REAL / "smollm2-greedy-count.gguf")
        name = next(key for key in golden.tensors if key.endswith(".tokens")).rsplit(".", 1)[0]
        prompt = self.decode(golden.ints(f"{name}.tokens"), model=MODEL)
        expected = self.decode(golden.ints(f"{name}.continuation"), model=MODEL)
        self.assertEqual(self.ids(prompt.decode(), model=MODEL), golden.ints(f"{name}.tokens"))
        answer = self.ok("run", MODEL, "--raw", "--temp", "0", "-n", "64", "--ignore-eos", "-p", prompt.decode())
        self.assertEqual(answer, expected)

    def test_perplexity(self):
        for text in ("english", "chat"):
            expected = Gguf(REAL / f"smollm2-{text}.gguf").keys["golden.perplexity"][1]
            args = ("perplexity", MODEL, "--whole", "--json", "--tokens", REAL / f"smollm2-{text}.gguf")
            exact = json.loads(self.text(*args, "--precision", "f32"))["perplexity"]
            self.assertAlmostEqual(exact / expected, 1, delta=1e-5)
            usual = json.loads(self.text(*args, "--compare", "f32"))
            self.assertEqual(usual["perplexity_f32"], exact)
            self.assertAlmostEqual(usual["perplexity"] / expected, 1, delta=0.05 if text == "chat" else 0.01)
            self.assertLess(usual["kl"], 0.01)
            self.assertGreater(usual["same_best"], 0.9)

    def test_the_doctor_on_twins(self):
        # The shares are those that another program counted (Twins in README.md of the references).
        for power, share, layers in ((8, 0.00016, None), (13, 0.082, 20)):
            twin = subprocess.run([sys.executable, ROOT / "tools" / "cached_twin.py", MODEL, "--experts", "4", "--overflow",
                                   str(power), "--down-f16"], stdout=subprocess.PIPE, check=True, timeout=600)
            args = ("doctor", twin.stdout.decode().strip(), "--tokens", REAL / "smollm2-english.gguf", "--json")
            report = json.loads(self.text(*args))
            down = [source for source in report["sources"] if source["kind"] == "ffn_down_exps"]
            rows, over = sum(s["rows"] for s in down), sum(s["over"] for s in down)
            self.assertEqual(rows, 30 * 4 * 256)
            self.assertAlmostEqual(over / rows, share, delta=0.01 * share + 0.5 / rows + 5e-6 + 0.0005 * (power == 13))
            if layers:
                self.assertEqual(sum(s["over"] > 0 for s in down), layers)
            self.assertFalse(any(s["over"] for s in report["sources"] if s["kind"] != "ffn_down_exps"))


if __name__ == "__main__":
    unittest.main()
