"""mote perplexity: its figures are those that the logits give by the published formula."""
import json
import math
import re
import unittest

from cli import BOS, LLAMA, CliTest
from gguf import BOOL

TEXT = ("The quick brown fox jumps over the lazy dog, and the dog does not care about it in the least. " * 3)


def log_softmax(row, index):
    most = max(row)
    return row[index] - most - math.log(sum(math.exp(x - most) for x in row))


class Perplexity(CliTest):
    def measure(self, *args, model=LLAMA, **more):
        return json.loads(self.text("perplexity", model, "--json", *args, **more))

    def by_hand(self, tokens, n_chunk, n_chunks, first, *args, bos=True, model=LLAMA):
        nll = []
        for i in range(n_chunks):
            chunk = tokens[i * n_chunk:(i + 1) * n_chunk]
            if bos:
                chunk[0] = BOS
            rows = self.logits(chunk, *args, model=model)
            nll += [-log_softmax(rows[j], chunk[j + 1]) for j in range(first, n_chunk - 1)]
        mean = sum(nll) / len(nll)
        variance = sum(x * x for x in nll) / len(nll) - mean * mean
        return math.exp(mean), math.exp(mean) * math.sqrt(variance / (len(nll) - 1)), len(nll)

    def check(self, answer, expected):
        self.assertAlmostEqual(answer["perplexity"] / expected[0], 1, delta=1e-6)
        self.assertAlmostEqual(answer["error"] / expected[1], 1, delta=1e-4)
        self.assertEqual(answer["tokens"], expected[2])

    def setUp(self):
        super().setUp()
        self.file = self.write("text.txt", TEXT + "\n")
        self.tokens = self.ids(TEXT, "--bos")

    def test_chunks(self):
        n_chunks = len(self.tokens) // 64
        self.assertGreater(n_chunks, 2)
        self.check(self.measure("-f", self.file, "-c", "64"), self.by_hand(self.tokens, 64, n_chunks, 32))
        self.check(self.measure("-f", self.file, "-c", "64", "--chunks", "2"), self.by_hand(self.tokens, 64, 2, 32))
        self.check(self.measure("-c", "31", stdin=TEXT.encode()),
                   self.by_hand(self.tokens, 31, len(self.tokens) // 31, 15))

    def test_default_chunk(self):
        text = TEXT * 3
        file = self.write("long.txt", text)
        self.check(self.measure("-f", file), self.by_hand(self.ids(text, "--bos"), 512, 1, 256))

    def test_without_bos(self):
        plain = self.model(tokenizer__ggml__add_bos_token=(BOOL, False))
        self.check(self.measure("-f", self.file, "-c", "64", "--chunks", "2", model=plain),
                   self.by_hand(self.ids(TEXT), 64, 2, 32, bos=False, model=plain))

    def test_whole(self):
        expected = self.by_hand(self.tokens, len(self.tokens), 1, 0)
        self.check(self.measure("-f", self.file, "--whole"), expected)
        ids = self.write("ids.txt", str(self.tokens))
        self.check(self.measure("--tokens", ids, "--whole"), expected)

    def test_precision(self):
        exact = self.measure("-f", self.file, "--whole", "--precision", "f32")
        self.check(exact, self.by_hand(self.tokens, len(self.tokens), 1, 0, "--precision", "f32"))
        self.assertNotEqual(exact["perplexity"], self.measure("-f", self.file, "--whole")["perplexity"])

    def test_special(self):
        text = self.write("special.txt", "a<|eos|>b" * 8)
        self.assertEqual(self.measure("-f", text, "--whole", "--special")["tokens"], 24)
        self.assertEqual(self.measure("-f", text, "--whole")["tokens"], 8 * len(self.ids("a<|eos|>b")))

    def test_compare(self):
        for form in (["-c", "64", "--chunks", "2"], ["--whole"]):
            answer = self.measure("-f", self.file, *form, "--compare", "f32")
            usual = self.measure("-f", self.file, *form)
            exact = self.measure("-f", self.file, *form, "--precision", "f32")
            self.assertEqual(answer["perplexity"], usual["perplexity"])
            self.assertEqual(answer["perplexity_f32"], exact["perplexity"])
            self.assertGreater(answer["kl"], 0)
            self.assertLess(answer["kl"], 1e-3)
            self.assertGreaterEqual(answer["kl_max"], answer["kl"])
            self.assertGreater(answer["same_best"], 0.9)
        rows = self.logits(self.tokens[:-1])
        exact = self.logits(self.tokens[:-1], "--precision", "f32")
        kl = [sum(math.exp(log_softmax(p, i)) * (log_softmax(p, i) - log_softmax(q, i)) for i in range(0, 288))
              for p, q in zip(exact[:4], rows[:4])]
        few = self.write("few.txt", str(self.tokens[:5]))
        answer = self.measure("--tokens", few, "--whole", "--compare", "f32")
        self.assertAlmostEqual(answer["kl"], sum(kl) / 4, delta=1e-7)

    def test_for_people(self):
        text = self.text("perplexity", LLAMA, "-f", self.file, "-c", "64", "--compare", "f32")
        answer = self.measure("-f", self.file, "-c", "64", "--compare", "f32")
        shown = re.match(r"PPL = ([\d.]+) \+/- ([\d.]+) ", text)
        self.assertAlmostEqual(float(shown[1]), answer["perplexity"], delta=1e-6 * answer["perplexity"])
        self.assertAlmostEqual(float(shown[2]), answer["error"], delta=1e-5 * answer["perplexity"])
        self.assertIn("KL divergence", text)
        self.assertIn("same best token", text)

    def test_no_answer_depends_on_threads_or_batch(self):
        expected = self.ok("perplexity", LLAMA, "-f", self.file, "-c", "64", "--json")
        for args in (["-t", "1"], ["-t", "3", "-b", "5"], ["-b", "16"]):
            self.assertEqual(self.ok("perplexity", LLAMA, "-f", self.file, "-c", "64", "--json", *args), expected)

    def test_wrong_use(self):
        short = self.write("short.txt", "abc")
        self.fails(1, "perplexity", LLAMA, "-f", short, mentions=["4 tokens", "512", "--whole"])
        self.fails(1, "perplexity", LLAMA, "-f", self.write("empty.txt", ""), "--whole", mentions="tokens")
        self.fails(1, "perplexity", LLAMA, "-f", self.file, "--whole", "-c", "64", mentions=["64", "-c"])
        self.wrong_usage("perplexity", LLAMA, "-f", "a", "--tokens", "b", mentions="--tokens")
        self.wrong_usage("perplexity", LLAMA, "--whole", "--chunks", "1", mentions="--chunks")
        self.wrong_usage("perplexity", LLAMA, "--chunks", "0", mentions="--chunks")
        self.wrong_usage("perplexity", LLAMA, "--compare", "f16", mentions="f32")
        self.wrong_usage("perplexity", LLAMA, "--compare", "f32", "--precision", "f32", mentions="--precision")


if __name__ == "__main__":
    unittest.main()
