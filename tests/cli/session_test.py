"""--prompt-cache: a session that is saved goes on with the bits it would have had, on any devices."""
import unittest

from cli import DATA, LLAMA, MODELS, CliTest

PROMPT = ("hello there, this is a longer prompt with quite some words, so that a few pages are full of keys and values; "
          "and it goes on and on, for many words")
SHORT = PROMPT[:90]


class SessionTest(CliTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache.kv"

    def answer(self, model, prompt, *more):
        return self.ok("run", model, "--raw", "-p", prompt, "-n", "12", "--seed", "5", "-t", "2", *more)

    def with_cache(self, model, prompt, *more):
        return self.answer(model, prompt, "--prompt-cache", self.cache, *more)

    def test_goes_on_on_any_devices(self):
        for i, name in enumerate(("llama", "gemma3", "mistral4", "gpt-oss", "deepseek2", "qwen3moe", "granite")):
            model = MODELS / f"{name}.gguf"
            kv = [["--kv", "f32"], [], ["--precision", "f32"]][i % 3]
            alone = self.answer(model, PROMPT, *kv)
            for first, second in (("1", "2"), ("3", "1"), ("2", "8")):
                self.cache.unlink(missing_ok=True)
                self.with_cache(model, SHORT, *kv, "--devices", first)
                saved = self.cache.read_bytes()
                self.assertEqual(self.with_cache(model, PROMPT, *kv, "--devices", second), alone, (name, first, second))
                self.assertNotEqual(self.cache.read_bytes(), saved)
            self.cache.unlink()
            self.with_cache(model, SHORT, *kv)
            self.same(self.cache.read_bytes(), saved, "the file does not say on which devices it was made")

    def test_quantized_cache_and_adapters(self):
        folder = DATA / "lora"
        model, lora = folder / "qwen3moe-tiny.gguf", ["--lora", folder / "qwen3moe-tiny.lora-experts.gguf"]
        alone = self.answer(model, PROMPT, *lora)
        self.with_cache(model, SHORT, *lora, "--devices", "2")
        self.assertEqual(self.with_cache(model, PROMPT, *lora), alone)
        self.assertIn("list of adapters", self.refused(model, PROMPT))
        self.assertIn("with other scales", self.refused(model, PROMPT, "--lora", f"{lora[1]}:0.5"))
        model = MODELS / "qwen3.gguf"
        self.cache.unlink()
        alone = self.answer(model, PROMPT, "--kv", "q8_0")
        self.with_cache(model, SHORT, "--kv", "q8_0", "--devices", "4")
        self.assertEqual(self.with_cache(model, PROMPT, "--kv", "q8_0", "--devices", "2"), alone)

    def test_modes(self):
        alone = self.answer(LLAMA, PROMPT)
        self.with_cache(LLAMA, PROMPT, "--prompt-cache-ro")
        self.assertFalse(self.cache.exists())
        self.with_cache(LLAMA, PROMPT, "--prompt-cache-all")
        long = self.cache.stat().st_size
        saved = self.cache.read_bytes()
        # A file that has more than the prompt, or another end, is used as far as it goes.
        self.assertEqual(self.with_cache(LLAMA, PROMPT, "--prompt-cache-ro"), alone)
        self.assertEqual(self.with_cache(LLAMA, SHORT + "!", "--prompt-cache-ro"), self.answer(LLAMA, SHORT + "!"))
        self.assertEqual(self.cache.read_bytes(), saved)
        self.with_cache(LLAMA, PROMPT)
        self.assertLessEqual(self.cache.stat().st_size, long)
        done = self.run_mote("run", LLAMA, "-p", "a", "--prompt-cache-all")
        self.assertEqual(done.returncode, 2)

    def refused(self, model, prompt, *more):
        done = self.run_mote("run", model, "--raw", "-p", prompt, "-n", "2", "--prompt-cache", self.cache, *more)
        self.assertEqual((done.returncode, done.stdout), (1, b""), done)
        return done.stderr.decode()

    def test_other_engines(self):
        self.with_cache(LLAMA, SHORT)
        self.assertIn("of another model", self.refused(MODELS / "qwen3.gguf", PROMPT))
        self.assertIn("dtype of the KV cache", self.refused(LLAMA, PROMPT, "--kv", "f32"))
        self.assertIn("precision", self.refused(LLAMA, PROMPT, "--precision", "attn=f32"))
        self.assertIn("use a larger -c", self.refused(LLAMA, "a", "-c", "16"))

    def test_damaged_files(self):
        self.with_cache(LLAMA, SHORT)
        good = self.cache.read_bytes()
        for size in (0, 5, 60, 100, 300, len(good) // 2, len(good) - 1):
            self.cache.write_bytes(good[:size])
            self.assertRegex(self.refused(LLAMA, PROMPT), "cut short|is empty", size)
        for at in (0, 9, 13, 20, 41, 60, 64, 90, 200, len(good) // 2, len(good) - 4):
            self.cache.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
            self.refused(LLAMA, PROMPT)
        self.cache.write_bytes(good + b"\0")
        self.assertIn("damaged", self.refused(LLAMA, PROMPT))
        self.cache.write_bytes(good)
        self.assertEqual(self.with_cache(LLAMA, PROMPT), self.answer(LLAMA, PROMPT))


if __name__ == "__main__":
    unittest.main()
