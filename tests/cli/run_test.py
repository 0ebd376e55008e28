"""mote run: every option does what it says, and an answer is what the logits say."""
import unittest

from cli import BOS, EOS, LLAMA, MODELS, CliTest, counts, visible
from gguf import ARRAY, BOOL, F32, STRING, U32, Gguf

RAW = ("run", LLAMA, "--raw", "--temp", "0")


class Prompt(CliTest):
    def test_greedy_follows_the_logits(self):
        expected = self.greedy(self.ids("The cat", "--bos"), 6)
        self.assertEqual(visible(self.ok(*RAW, "-p", "The cat", "-n", "6")), visible(self.decode(expected)))

    def test_prompt_from_argument_file_and_standard_input(self):
        answer = self.ok(*RAW, "-p", "The cat", "-n", "5")
        with_newline = self.write("prompt.txt", "The cat\n")
        self.assertEqual(self.ok(*RAW, "-n", "5", "-f", with_newline), answer)
        self.assertEqual(self.ok(*RAW, "-n", "5", stdin=b"The cat\n"), answer)
        self.assertEqual(self.ok(*RAW, "-n", "5", "-f", "-", stdin=b"The cat"), answer)
        self.assertNotEqual(self.ok(*RAW, "-n", "5", stdin=b"The cat\n\n"), answer)
        self.assertEqual(self.ok("run", "-m", *RAW[1:], "-p", "The cat", "-n", "5"), answer)

    def test_bos_comes_first_and_once(self):
        def n_prompt(text, *args, model=LLAMA):
            return counts(self.verbose("run", model, "--raw", "-p", text, "-n", "0", *args))[0]
        self.assertEqual(n_prompt("abc"), 4)
        self.assertEqual(n_prompt("<|bos|>abc"), 4)
        without = self.model(tokenizer__ggml__add_bos_token=(BOOL, False))
        self.assertEqual(n_prompt("abc", model=without), 3)
        # As text, it is no BOS, and one comes before it.
        self.assertEqual(n_prompt("<|bos|>abc", "--no-special"), 1 + len(self.ids("<|bos|>abc")))

    def test_special_tokens_of_a_raw_prompt(self):
        special = self.verbose(*RAW, "-p", "a<|eos|>b", "-n", "0")
        plain = self.verbose(*RAW, "-p", "a<|eos|>b", "-n", "0", "--no-special")
        self.assertEqual(counts(special)[0], 4)
        self.assertEqual(counts(plain)[0], 1 + len(self.ids("a<|eos|>b")))
        self.assertGreater(counts(plain)[0], counts(special)[0])

    def test_empty_prompt(self):
        # BOS alone is a prompt; nothing at all is none.
        self.assertEqual(counts(self.verbose(*RAW, "-n", "2"))[0], 1)
        without = self.model(tokenizer__ggml__add_bos_token=(BOOL, False))
        self.fails(1, "run", without, "--raw", "-p", "", mentions="no tokens")

    def test_invalid_utf8(self):
        for args in (["-f", self.write("bad.txt", b"ab\xffc")], []):
            self.fails(1, *RAW, *args, stdin=b"ab\xffc", mentions=["UTF-8", "0xff", "offset 2"])
        for bad in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82"):
            self.fails(1, *RAW, stdin=bad, mentions="UTF-8")
        self.ok(*RAW, "-n", "1", stdin="\0é€😀".encode())

    def test_files_that_cannot_be_read(self):
        self.fails(1, *RAW, "-f", self.folder / "none", mentions="none")
        self.fails(1, *RAW, "-f", self.folder, mentions="directory")


class Length(CliTest):
    def test_n(self):
        for n in (0, 1, 7):
            out = self.verbose(*RAW, "-p", "The", "-n", str(n), "--ignore-eos")
            self.assertEqual(counts(out)[1], n)
        self.assertEqual(self.ok(*RAW, "-p", "The", "-n", "0"), b"")

    def test_end_of_generation(self):
        first = self.greedy(self.ids("The", "--bos"), 1)[0]
        ends = self.model(tokenizer__ggml__eos_token_id=(U32, first))
        args = ("run", ends, "--raw", "--temp", "0", "-p", "The")
        self.assertEqual(self.ok(*args), b"")
        self.assertIn("ended by the model", self.verbose(*args))
        self.assertEqual(counts(self.verbose(*args, "--ignore-eos", "-n", "5"))[1], 5)
        # Without it, the token is as good as any other and is the answer's first.
        self.assertTrue(self.ok(*RAW, "-p", "The", "-n", "1").startswith(self.decode([first])[:1]))

    def test_full_context(self):
        done = self.run_mote(*RAW, "-p", "The", "-c", "10", "--ignore-eos", "-v")
        self.assertEqual(done.returncode, 0)
        self.assertIn("context of 10 tokens is full", done.stderr.decode())
        self.assertEqual(counts(done.stderr.decode()), (3, 8))  # the last token need not go in
        exact = self.run_mote(*RAW, "-p", "The", "-c", "10", "--ignore-eos", "-n", "8")
        self.assertEqual((exact.returncode, exact.stderr), (0, b""))
        self.assertEqual(exact.stdout, done.stdout)

    def test_prompt_longer_than_the_context(self):
        self.fails(1, *RAW, "-p", "The cat", "-c", "4", mentions=["7 tokens", "context of 4", "-c"])
        self.fails(1, *RAW, "-p", "a" * 300, mentions=["301 tokens", "256"])
        self.ok(*RAW, "-p", "a" * 300, "-n", "1", "-c", "400")

    def test_context_zero_is_the_trained_one(self):
        done = self.run_mote(*RAW, "-p", "The", "-c", "0", "--ignore-eos", "-v")
        self.assertEqual(sum(counts(done.stderr.decode())), 256 + 1)


class Sampling(CliTest):
    HOT = ("run", LLAMA, "--raw", "-p", "The", "-n", "12", "--ignore-eos")

    def test_seed(self):
        one = self.ok(*self.HOT, "-s", "1")
        self.assertEqual(one, self.ok(*self.HOT, "--seed", "1"))
        self.assertNotEqual(one, self.ok(*self.HOT, "-s", "2"))
        done = self.run_mote(*self.HOT, "-v")
        seed = done.stderr.decode().rsplit("seed ", 1)[1].strip()
        self.assertEqual(done.stdout, self.ok(*self.HOT, "-s", seed))
        seeds = {self.verbose(*self.HOT, "-s", "-1").rsplit("seed ", 1)[1] for _ in range(3)}
        self.assertEqual(len(seeds), 3)

    def test_filters_leave_the_likeliest(self):
        greedy = self.ok(*self.HOT, "--temp", "0")
        hot = self.HOT + ("--temp", "5", "-s", "3")
        wide = self.ok(*hot, "--top-k", "0", "--top-p", "1", "--min-p", "0")
        self.assertNotEqual(wide, greedy)
        for narrow in (("--top-k", "1"), ("--top-p", "1e-6"), ("--min-p", "1")):
            options = {"--top-k": "0", "--top-p": "1", "--min-p": "0", narrow[0]: narrow[1]}
            self.assertEqual(self.ok(*hot, *(word for pair in options.items() for word in pair)), greedy, narrow)
        # Each default narrows the choice, so turning it off changes the answer of some seed.
        for off in (("--top-k", "0"), ("--min-p", "0")):
            self.assertNotEqual([self.ok(*self.HOT, "--temp", "3", "-s", str(s)) for s in range(3)],
                                [self.ok(*self.HOT, "--temp", "3", "-s", str(s), *off) for s in range(3)], off)

    def test_temperature(self):
        self.assertNotEqual(self.ok(*self.HOT, "-s", "3", "--temp", "0.1"),
                            self.ok(*self.HOT, "-s", "3", "--temp", "4"))
        self.assertEqual(self.ok(*self.HOT, "--temp", "0", "-s", "1"), self.ok(*self.HOT, "--temp", "0", "-s", "2"))

    def test_the_files_own_defaults(self):
        cold = self.model(general__sampling__temp=(F32, 0.0))
        args = ("run", cold, *self.HOT[2:])
        self.assertEqual(self.ok(*args, "-s", "1"), self.ok(*self.HOT, "--temp", "0"))
        self.assertEqual(self.ok(*args, "-s", "1", "--temp", "0.8"), self.ok(*self.HOT, "-s", "1"))


class Compute(CliTest):
    def test_no_answer_depends_on_threads_or_batch(self):
        args = (*RAW, "-p", "The quick brown fox", "-n", "8", "--ignore-eos")
        answer = self.ok(*args)
        for more in (["-t", "1"], ["-t", "3"], ["-b", "1"], ["-b", "7"], ["--batch-size", "64", "--threads", "2"]):
            self.assertEqual(self.ok(*args, *more), answer, more)
        for n in (1, 3):
            self.assertIn(f" {n} threads", self.verbose(*args, "-t", str(n)))

    def test_pre(self):
        odd = self.model(tokenizer__ggml__pre=(STRING, "nosuch"))
        message = self.fails(1, "run", odd, "--raw", "-p", "a", mentions="nosuch")
        self.assertIn("gpt-2", message)
        self.ok("run", odd, "--raw", "-p", "a", "-n", "1", "--pre", "gpt-2")
        self.fails(1, "run", LLAMA, "--raw", "-p", "a", "--pre", "nosuch", mentions="nosuch")

    def test_more_memory_than_there_is(self):
        llama = Gguf(LLAMA)
        deep = Gguf(LLAMA)
        deep.tensors = {name: tensor for name, tensor in llama.tensors.items() if not name.startswith("blk.")}
        for i in range(64):  # 8 kB of KV cache a position: 128 GiB in all
            deep.tensors |= {name.replace("blk.0.", f"blk.{i}."): tensor for name, tensor in llama.tensors.items()
                             if name.startswith("blk.0.")}
        deep.keys["llama.block_count"] = (U32, 64)
        model = deep.write(self.folder / "deep.gguf")
        args = ("run", model, "--raw", "-p", "a", "-n", "1", "-c", "16777216")
        done = self.run_mote(*args)
        if done.returncode == 0:
            print("skipped: a context that does not fit: this machine has more memory than the test asks for")
            return
        self.assertRegex(done.stderr.decode(), r"16777216.*only \d+ MiB.*-c \d+ fits.*--force")
        fits = done.stderr.decode().split("-c ")[1].split()[0]
        self.assertLess(int(fits), 16777216)
        # With --force it goes on: the system gives the memory or does not, and that is another error.
        forced = self.run_mote(*args, "--force")
        self.assertNotIn(b"--force", forced.stderr)
        self.assertTrue(forced.returncode == 0 or b"out of memory" in forced.stderr, forced)

    def test_every_tiny_model_answers(self):
        for model in sorted(MODELS.glob("*.gguf")):
            if not model.name.endswith(".golden.gguf"):
                out = self.verbose("run", model, "--raw", "-p", "The", "-n", "3", "--ignore-eos")
                self.assertEqual(counts(out)[1], 3, model)

    def test_verbose_is_silent_without_v(self):
        self.assertEqual(self.run_mote(*RAW, "-p", "a", "-n", "1").stderr, b"")
        self.assertIn("tokens", self.verbose(*RAW, "-p", "a", "-n", "1"))

    def test_a_vocabulary_without_its_bytes(self):
        tokens = Gguf(LLAMA).keys["tokenizer.ggml.tokens"][1][1]
        self.assertEqual((tokens[BOS], tokens[EOS]), ("<|bos|>", "<|eos|>"))
        self.fails(1, "run", self.model(tokenizer__ggml__tokens=(ARRAY, (STRING, tokens[:-1]))), "--raw", "-p", "a",
                   mentions="288")


if __name__ == "__main__":
    unittest.main()
