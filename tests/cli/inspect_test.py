"""mote inspect: what it shows is what the file holds."""
import json
import os
import struct
import unittest

from cli import LLAMA, MODELS, CliTest
from gguf import DTYPE_F32, STRING, Gguf


class Inspect(CliTest):
    def json(self, *args):
        return json.loads(self.text("inspect", *args, "--json"))

    def test_metadata(self):
        text = self.text("inspect", LLAMA)
        about = self.json(LLAMA)
        keys = Gguf(LLAMA).keys
        self.assertEqual([entry["key"] for entry in about["keys"]], list(keys))
        for key in keys:
            self.assertIn(f"  {key} ", text)
        self.assertIn("(288)", text)  # arrays are cut short, and say how long they are
        self.assertLess(max(map(len, text.splitlines())), 200)
        values = {entry["key"]: entry["value"] for entry in about["keys"]}
        self.assertEqual(values["llama.block_count"], 3)
        self.assertEqual(values["general.name"], "tiny llama")
        self.assertEqual(about["version"], 3)
        self.assertEqual(about["size"], LLAMA.stat().st_size)
        self.assertEqual(about["model"]["architecture"], "llama")
        same = self.text("inspect", "-m", LLAMA)  # but for the memory that is free
        self.assertEqual(same.split("free now")[0], text.split("free now")[0])

    def test_tensors(self):
        tensors = {t["name"]: t for t in self.json(LLAMA, "--tensors")}
        gguf = Gguf(LLAMA)
        self.assertEqual(set(tensors), set(gguf.tensors))
        for name, (dims, _, payload) in gguf.tensors.items():
            self.assertEqual((tensors[name]["shape"], tensors[name]["size"]), (dims, len(payload)))
        text = self.text("inspect", LLAMA, "--tensors")
        for name in gguf.tensors:
            self.assertRegex(text, rf"(?m)^  {name} ")
        self.assertIn(f"{len(gguf.tensors)} tensors", text)

    def test_plan(self):
        plan = self.json(LLAMA, "--plan")
        self.assertGreater(len(plan["steps"]), 3)
        self.assertIn("memory", plan)
        self.assertIn(f"{len(plan['steps'])} steps", self.text("inspect", LLAMA, "--plan"))

    def sources(self, *args, model=LLAMA):
        """{kind of weight: what its source is rounded to} of the first layer."""
        found = {}
        for step in self.json(model, "--plan", *args)["steps"]:
            for weight in step.get("weights", []):
                name = weight["name"].removesuffix(".weight")
                if not name.startswith("blk.") or name.startswith("blk.0."):
                    found[name.removeprefix("blk.0.")] = step["source"]
        return found

    def test_plan_shows_the_precision_of_sources(self):
        own = self.sources()
        self.assertEqual(set(own), {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
                                    "output"})
        self.assertEqual(set(own.values()), {"f16"})
        self.assertEqual(set(self.sources("--precision", "f32").values()), {"f32"})
        mixed = {kind: "f32" if kind.startswith("attn") else "bf16" if kind == "ffn_down" else "f16" for kind in own}
        self.assertEqual(self.sources("--precision", "ffn_down=bf16,attn=f32"), mixed)
        self.assertEqual(self.sources("--precision", "bf16,ffn=f32,ffn_down=default")["ffn_down"], "f16")
        text = self.text("inspect", LLAMA, "--plan", "--precision", "ffn_down=bf16")
        self.assertRegex(text, r"(?m)^  \d+ +matmul .* bf16 +blk\.0\.ffn_down$")
        self.assertRegex(text, r"(?m)^  \d+ +matmul .* f16 +blk\.0\.attn_q blk\.0\.attn_k blk\.0\.attn_v$")
        # A router is rounded where it is named, and not with the rest.
        mixtral = MODELS / "mixtral.gguf"
        self.assertEqual(self.sources("--precision", "bf16", model=mixtral)["ffn_gate_inp"], "f32")
        self.assertEqual(self.sources("--precision", "bf16", model=mixtral)["ffn_gate_exps"], "bf16")
        self.assertEqual(self.sources("--precision", "ffn_gate_inp=bf16", model=mixtral)["ffn_gate_inp"], "bf16")

    def test_precisions_that_cannot_be(self):
        self.fails(1, "inspect", LLAMA, "--plan", "--precision", "ffn_dwon=f32",
                   mentions=["'ffn_dwon'", "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down output"])
        self.fails(1, "inspect", LLAMA, "--plan", "--precision", "ffn_d=f32", mentions="'ffn_d'")
        self.fails(1, "inspect", LLAMA, "--plan", "--precision", "kv=f32", mentions="KV cache")
        self.fails(1, "inspect", LLAMA, "--plan", "--precision", "ffn_down=q8",
                   mentions=["blk.0.ffn_down.weight", "q8", "f16"])
        self.fails(1, "run", LLAMA, "-p", "a", "--precision", "q8", mentions="q8")

    def test_memory_follows_the_options(self):
        def memory(*args, model=MODELS / "qwen3.gguf"):  # Q8_0 wants heads of 32
            return self.json(model, *args)["memory"]
        small = memory("-c", "64")
        self.assertEqual(small["n_context"], 64)
        self.assertGreater(memory("-c", "4096")["kv"], small["kv"])
        self.assertGreater(memory("-c", "64", "--kv", "f32")["kv"], small["kv"])
        self.assertLess(memory("-c", "64", "--kv", "q8_0")["kv"], small["kv"])
        self.assertGreater(memory("-c", "64", "--precision", "f32")["kv"], small["kv"])
        for option in ("-ctk", "-ctv"):
            self.assertEqual(memory("-c", "64", option, "f32")["kv"], memory("-c", "64", "--kv", "f32")["kv"])
        self.assertLess(memory("-b", "1")["work"], memory("-b", "512")["work"])
        self.assertEqual(memory("-c", "0")["n_context"], 256)
        self.assertEqual(memory()["n_context"], 256)
        self.assertEqual(small["total"], sum(small[part] for part in ("weights", "kv", "work", "logits")))
        self.assertIn("32", self.json(LLAMA, "--kv", "q8_0")["error"])
        self.assertIn("Memory at a context of 64", self.text("inspect", LLAMA, "-c", "64"))
        self.fails(1, "inspect", LLAMA, "-ctk", "f32", "-ctv", "q8_0", mentions=["f32", "q8_0"])

    def test_a_file_that_is_no_model(self):
        golden = MODELS / "llama.golden.gguf"
        text = self.text("inspect", golden)
        self.assertIn("Does not run as a model", text)
        self.assertIn("general.architecture", text)
        self.assertIn("error", self.json(golden))
        self.assertIn("48", self.text("inspect", golden, "--tensors"))
        self.fails(1, "inspect", golden, "--plan", mentions="architecture")

    def test_control_characters_of_a_file(self):
        evil = self.model(general__name=(STRING, "a\x1b[31mb\nc\x9b"))
        text = self.text("inspect", evil)
        self.assertIn("a\\x1b[31mb\\nc\\xc2\\x9b", text)
        self.assertNotIn("\x1b", text)
        values = {entry["key"]: entry["value"] for entry in self.json(evil)["keys"]}
        self.assertEqual(values["general.name"], "a\x1b[31mb\nc\x9b")


class TensorValues(CliTest):
    def test_values(self):
        gguf = Gguf(LLAMA)
        for name in ("blk.0.attn_k.weight", "output_norm.weight"):
            out = self.folder / "tensor.gguf"
            self.assertEqual(self.ok("inspect", LLAMA, "--tensor", name, "-o", out), b"")
            written = Gguf(out)
            self.assertEqual(list(written.tensors), [name])
            dims, dtype, _ = written.tensors[name]
            source_dims, source_dtype, payload = gguf.tensors[name]
            self.assertEqual((dims, dtype), (source_dims, DTYPE_F32))
            form, size = ("f", 4) if source_dtype == DTYPE_F32 else ("e", 2)
            self.same(written.floats(name), struct.unpack(f"<{len(payload) // size}{form}", payload))

    def test_failures_leave_no_file(self):
        out = self.folder / "out.gguf"
        self.fails(1, "inspect", LLAMA, "--tensor", "nosuch.weight", "-o", out, mentions="nosuch.weight")
        self.assertEqual(os.listdir(self.folder), [])
        self.wrong_usage("inspect", LLAMA, "--tensor", "output.weight", mentions="-o")
        self.wrong_usage("inspect", LLAMA, "-o", out, mentions="--tensor")
        self.wrong_usage("inspect", LLAMA, "--plan", "--tensors", mentions="exclude")
        self.fails(1, "inspect", LLAMA, "--tensor", "output.weight", "-o", self.folder / "no" / "x", mentions="no/x")

    def test_never_over_an_input(self):
        model = self.model()
        before = model.read_bytes()
        link = self.folder / "link.gguf"
        os.link(model, link)
        for out in (model, link):
            self.wrong_usage("inspect", model, "--tensor", "output.weight", "-o", out, mentions="overwrite")
        self.assertEqual(model.read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
