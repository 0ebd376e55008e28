"""--lora: its forms, that it reaches what computes, and how wrong files are refused."""
import statistics
import unittest

from cli import DATA, LLAMA, CliTest
from gguf import Gguf

LORA = DATA / "lora"
TINY = LORA / "qwen3moe-tiny.gguf"
GOLDEN = LORA / "qwen3moe-tiny.golden.gguf"
EXPERTS = LORA / "qwen3moe-tiny.lora-experts.gguf"
ATTENTION = LORA / "qwen3moe-tiny.lora-attention.gguf"


class Lora(CliTest):
    def rows(self, *args):
        out = self.folder / "out.gguf"
        self.ok("logits", TINY, "--tokens", GOLDEN, "-o", out, "--precision", "f32", *args)
        return Gguf(out).rows("logits")

    def test_forms(self):
        golden = Gguf(GOLDEN)
        cases = {
            "base": [],
            "experts": ["--lora", EXPERTS],
            "attention": [f"--lora={ATTENTION}:1.0"],
            "both": ["--lora", f"{EXPERTS}:0.5", "--lora", f"{ATTENTION}:-75e-2"],
        }
        for case, args in cases.items():
            expected = golden.rows(f"{case}.logits")
            deviation = statistics.pstdev(x for row in expected for x in row)
            largest = max(abs(x - y) for a, b in zip(self.rows(*args), expected) for x, y in zip(a, b))
            self.assertLess(largest, 2e-4 * deviation, case)
        self.same(self.rows("--lora", f"{EXPERTS}:0"), self.rows())

    def test_a_colon_in_a_name(self):
        odd = self.folder / "a:b"
        odd.write_bytes(EXPERTS.read_bytes())
        self.same(self.rows("--lora", odd), self.rows("--lora", f"{odd}:1"))

    def test_all_commands(self):
        text = self.write("text.txt", "abc def " * 20)
        plain = self.ok("run", TINY, "--raw", "-p", "abc", "-n", "12", "--temp", "0")
        self.assertNotEqual(self.ok("run", TINY, "--raw", "-p", "abc", "-n", "12", "--temp", "0", "--lora",
                                    f"{ATTENTION}:4"), plain)
        self.assertNotEqual(self.ok("perplexity", TINY, "-f", text, "--whole", "--lora", ATTENTION),
                            self.ok("perplexity", TINY, "-f", text, "--whole"))
        self.ok("bench", TINY, "-p", "4", "-n", "2", "-r", "1", "--lora", EXPERTS)
        self.assertIn("lora", self.text("inspect", TINY, "--plan", "--lora", EXPERTS))
        self.assertNotIn("lora", self.text("inspect", TINY, "--plan"))

    def test_refusals(self):
        run = ("-p", "a", "-n", "1")
        self.fails(1, "run", TINY, "--lora", self.folder / "none.gguf", *run, mentions="none.gguf")
        self.fails(1, "run", TINY, "--lora", TINY, *run, mentions=(str(TINY), "not an adapter"))
        self.fails(1, "run", LLAMA, "--lora", EXPERTS, *run,
                   mentions=(str(EXPERTS), "'qwen3moe'", "'llama'", "'blk.0.ffn_gate_inp.weight.lora_a' [64, 4]"))
        self.fails(1, "inspect", LLAMA, "--lora", EXPERTS, "--plan", mentions=str(EXPERTS))
        self.wrong_usage("run", TINY, "--lora", ":1", *run, mentions="FILE[:SCALE]")
        self.wrong_usage("run", TINY, "--lora", f"{EXPERTS}:1e99", *run, mentions="FILE[:SCALE]")
        self.wrong_usage("run", TINY, "--lora", mentions="FILE[:SCALE]")


if __name__ == "__main__":
    unittest.main()
