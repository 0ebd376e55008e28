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

    def mesh(self, *args, model=LLAMA):
        return self.json(model, "--plan", *args)

    def test_plan_of_a_mesh(self):
        tensors = {t["name"]: t["shape"] for t in self.json(LLAMA, "--tensors")}
        for n in (2, 3, 8):
            plan = self.mesh("--devices", n)
            devices, mesh = plan["mesh"]["devices"], plan["mesh"]
            self.assertEqual([d["device"] for d in devices], list(range(n)))
            self.assertEqual([d["eighths"][0] for d in devices[1:]], [d["eighths"][1] for d in devices[:-1]])
            together = {key: sum(d["memory"][key] for d in devices) for key in ("weights", "kv", "work", "logits")}
            for key in ("weights", "kv", "logits"):
                self.assertEqual(together[key], plan["memory"][key], (n, key))
            tables = plan["settings"]["n_batch"] * 16 * 4  # of rotations, which are no device's
            self.assertEqual(together["work"] + tables, plan["memory"]["work"], n)
            for what in ("token", "batch"):
                for key in ("int8_ops", "f32_ops", "bytes"):
                    self.assertGreaterEqual(sum(d[what][key] for d in devices), mesh["one"][what][key])
            self.assertLessEqual(set(tensors), {t["name"] for t in mesh["tensors"]} | {"rope_freqs.weight"})
            for tensor in mesh["tensors"]:
                if tensor["placement"] == "Replicate":
                    self.assertNotIn("ranges", tensor)
                    continue
                size = tensor["shape"][int(tensor["placement"][len("Shard("):-1])]
                held = set().union(*(range(*r) for r in tensor["ranges"]))
                self.assertEqual(held, set(range(size)), tensor)  # nothing is missing, nothing is beyond
            layers = [c["layer"] for c in mesh["collectives"] if c["layer"] is not None]
            self.assertEqual(layers, [0, 0, 1, 1, 2, 2])  # two a layer
        self.assertNotIn("mesh", self.mesh())
        text = self.text("inspect", LLAMA, "--plan", "--devices", "2")
        for words in ("Mesh of 2 devices", "Layers 0 to 2", "Shard(1)", "all_reduce", "gather", "of one device"):
            self.assertIn(words, text)

    def test_a_split_decides_the_ranges(self):
        for tensor in self.mesh("--split", "3,1")["mesh"]["tensors"]:
            if tensor["name"] == "blk.1.ffn_up.weight":
                (begin, border), (also, end) = tensor["ranges"]
                self.assertEqual((begin, also, end), (0, border, tensor["shape"][1]))
                self.assertGreater(border, end - border)
                return
        self.fail("no such tensor")

    def test_what_to_expect_over_a_link(self):
        # Devices that compute in no time: what is left are the collectives.
        args = ("--devices", "2", "--speed", "1e9,1e9", "--link")
        plan = self.mesh(*args, "20us,25Gb/s")
        rows = [c["row_bytes"] for c in plan["mesh"]["collectives"]]
        seconds = sum(20e-6 + max(r) / 3.125e9 for r in rows)
        expected = plan["expected"]
        self.assertAlmostEqual(expected["decode_tokens_per_second"] * seconds, 1, delta=1e-4)
        self.assertAlmostEqual(expected["decode_collectives_share"], 1, delta=1e-4)
        for same in ("20µs,25Gb/s", "0.02ms,25000Mb/s", "20000ns,3.125GB/s"):
            self.assertAlmostEqual(self.mesh(*args, same)["expected"]["decode_tokens_per_second"] * seconds, 1, delta=1e-4)
        # Links that take no time: what is left is computing, of which each device has about half.
        fast = self.mesh("--devices", "2", "--speed", "1000,100", "--link", "1ns,1000TB/s")["expected"]
        self.assertGreater(fast["decode_tokens_per_second"], 120)
        self.assertLessEqual(fast["decode_tokens_per_second"], 200.1)
        self.assertIn("decode", self.text("inspect", LLAMA, "--plan", *args, "20us,25Gb/s").split("expect")[1])

    def test_links_that_cannot_be(self):
        for link in ("20us", "20us,", "20,25Gb/s", "20us,25", "20us,25Gb", "0us,25Gb/s", "-1us,1GB/s", "us,GB/s", ""):
            self.fails(1, "inspect", LLAMA, "--plan", "--devices", "2", f"--link={link}", mentions="20us,25Gb/s")
        self.fails(1, "inspect", LLAMA, "--plan", "--link", "20us,25Gb/s", mentions="--devices")
        self.wrong_usage("inspect", LLAMA, "--devices", "2", "--link", "20us,25Gb/s", mentions="--plan")
        self.wrong_usage("inspect", LLAMA, "--plan", "--devices", "2", "--speed", "1,1", mentions="--link")

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
