"""mote doctor: the share of rows that leave F16, and what is wrong in weights."""
import json
import os
import re
import struct
import unittest
import xml.etree.ElementTree as ElementTree

from cli import BOS, LLAMA, MODELS, CliTest, environment
from gguf import DTYPE_F16, DTYPE_F32, Gguf

GGUF_BAD = os.environ["MOTE_GGUF_BAD"]
# From tests/data/models/README.md: (share of rows beyond F16, largest value) of the overflow twins.
TWINS = {
    "llama-overflow": {"ffn_down": (0.64, 1.6e5)},
    "mixtral-overflow": {"ffn_down_exps": (0.85, 2.5e5)},
    "qwen3moe-overflow": {"ffn_down_exps": (0.79, 3e5)},
    "mellum-overflow": {"ffn_down_exps": (0.83, 3.6e5)},
    "mistral4-overflow": {"ffn_down_exps": (0.77, 3.4e5), "ffn_down_shexp": (0.78, 2.6e5)},
}


def golden(name):
    return MODELS / f"{name}.golden.gguf"


class Doctor(CliTest):
    def report(self, model, *args, **more):
        return json.loads(self.text("doctor", model, "--json", *args, **more))

    def kinds(self, report):
        """{kind: (rows, rows beyond F16, largest, exponent)} over all layers."""
        sums = {}
        for kind, seen in [(s["kind"], s) for s in report["sources"]] + [
                (k, s) for k in ("keys", "values") for s in report[k]]:
            rows, over, largest, exponent = sums.get(kind, (0, 0, 0, 0))
            sums[kind] = (rows + seen["rows"], over + seen["over"], max(largest, seen["largest"]),
                          max(exponent, seen["exponent"]))
        return sums

    def test_overflow_twins(self):
        for name, expected in TWINS.items():
            report = self.report(MODELS / f"{name}.gguf", "--tokens", golden(name))
            kinds = self.kinds(report)
            for kind, (share, largest) in expected.items():
                rows, over, most, exponent = kinds[kind]
                self.assertAlmostEqual(over / rows, share, delta=0.005, msg=f"{name} {kind}")
                self.assertAlmostEqual(most / largest, 1, delta=0.03, msg=f"{name} {kind}")
                self.assertTrue(65520 > most / 2 ** exponent >= 32760, (name, most, exponent))
            for kind, (_, over, most, exponent) in kinds.items():
                if kind not in expected:
                    self.assertEqual((over, exponent), (0, 0), kind)
                    self.assertLess(most, 65520)
            verdict = " ".join(report["verdict"])
            for kind in expected:
                self.assertIn(f"Sources of {kind} leave F16 in layers 0-", verdict)
            self.assertIn("divides each part of a row", verdict)
            self.assertNotIn("error", report)

    def test_the_base_models_fit(self):
        for name in ("llama", "mixtral", "gemma3", "mistral4"):
            report = self.report(MODELS / f"{name}.gguf", "--tokens", golden(name))
            self.assertTrue(all(over == 0 for _, over, _, _ in self.kinds(report).values()))
            self.assertIn("Nothing leaves F16", report["verdict"][0])

    def test_the_count_does_not_depend_on_threads_and_batches(self):
        model, tokens = MODELS / "mellum-overflow.gguf", golden("mellum-overflow")
        first = self.report(model, "--tokens", tokens, "-t", "1")
        for args in (["-t", "3"], ["-t", "2", "-b", "1"], ["-t", "3", "-b", "7"]):
            self.assertEqual(self.report(model, "--tokens", tokens, *args), first, args)
        for isa in ("c",):
            env = environment(MOTE_ISA=isa)
            self.assertEqual(self.report(model, "--tokens", tokens, env=env), first)

    def test_rows(self):
        report = self.report(MODELS / "mixtral.gguf", "--tokens", golden("mixtral"))
        kinds = self.kinds(report)
        self.assertEqual((report["architecture"], report["tokens"]), ("llama", 48))
        self.assertEqual(kinds["attn_q"][0], 2 * 48)
        self.assertEqual(kinds["ffn_down_exps"][0], 2 * 48 * 2)  # (token, expert)
        self.assertEqual(kinds["output"][0], 48)
        self.assertEqual(kinds["keys"][0], 2 * 48 * 2)  # two heads
        for source in report["sources"]:
            layer = re.match(r"blk\.(\d+)\.", source["tensor"])
            self.assertEqual(source["layer"], int(layer[1]) if layer else None)
            self.assertEqual(source["default"], "f32" if source["dtype"] == "f32" else "f16")
        for router in report["routers"]:
            self.assertEqual(sum(router["picks"]), 48 * 2)
            self.assertEqual(router["never_picked"], [i for i, n in enumerate(router["picks"]) if n == 0])

    def test_what_a_person_sees(self):
        text = self.text("doctor", MODELS / "mixtral-overflow.gguf", "--tokens", golden("mixtral-overflow"))
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(map(len, text.splitlines()[1:])), 80)
        self.assertRegex(text, r"(?m)^    0  #{40,} +2\^17\.9   ffn_down_exps$")
        self.assertRegex(text, r"(?m)^  ffn_down_exps +2\.495e\+05 +1 +163 of 192 \(84\.9%\)$")
        self.assertRegex(text, r"(?m)^    1  ffn_down_exps +81 of 96 \(84\.4%\) rows, up to 2\.49e\+05: 2\^-2$")
        self.assertIn("\nVerdict\n", text)
        base = self.text("doctor", LLAMA)
        self.assertRegex(base, r"(?m)^    0  #+ +\| +2\^\d\.\d +\w+$")
        self.assertNotIn("Beyond F16\n", base)

    def test_texts(self):
        file = self.write("text.txt", "The quick brown fox.\n")
        ids = self.ids("The quick brown fox.")
        ids = [BOS, *ids]
        listed = self.write("ids.txt", " ".join(map(str, ids)))
        by_text, by_ids = self.report(LLAMA, "-f", file), self.report(LLAMA, "--tokens", listed)
        self.assertEqual(by_text, by_ids)
        self.assertEqual(by_text["tokens"], len(ids))
        self.assertEqual(self.report(LLAMA, "-f", "-", stdin=b"The quick brown fox.\n"), by_text)
        self.assertGreater(self.report(LLAMA)["tokens"], 100)
        # What does not fit is cut, and that is said.
        done = self.run_mote("doctor", LLAMA, "-f", file, "-c", "3", "--json")
        self.assertIn(f"{len(ids)} tokens: the first 3 are run", done.stderr.decode())
        self.assertEqual(json.loads(done.stdout)["tokens"], 3)

    def test_svg(self):
        out = self.folder / "magnitudes.svg"
        model = self.folder / "a<b>&\"c.gguf"
        model.write_bytes((MODELS / "mistral4-overflow.gguf").read_bytes())
        args = ("--tokens", golden("mistral4-overflow"))
        with_picture = self.text("doctor", model, *args, "--svg", out)
        self.assertEqual(with_picture, self.text("doctor", model, *args))
        root = ElementTree.parse(out).getroot()
        texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(texts[0], "a<b>&\"c.gguf")
        for kind in ("ffn_down_exps", "ffn_down_shexp", "attn_q_a", "keys"):
            self.assertIn(kind, texts)
        self.assertTrue(any("F16 ends" in text for text in texts))
        titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertIn("layer 0, ffn_down_exps: largest 2.916e+05, 115 of 144 rows beyond F16", titles)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a<b>&\"c.gguf", "magnitudes.svg"])
        before = model.read_bytes()
        self.wrong_usage("doctor", model, "--svg", model, mentions="overwrite")
        self.assertEqual(model.read_bytes(), before)
        self.fails(1, "doctor", LLAMA, "--svg", self.folder / "no" / "x.svg", mentions="no/x.svg")

    def test_not_finite_weights(self):
        report = self.report(os.path.join(GGUF_BAD, "nan_scale.gguf"))
        self.assertEqual([w["tensor"] for w in report["weights"]["not_finite"]], ["blk.0.attn_q.weight"])
        self.assertEqual(report["weights"]["not_finite"][0]["infinite"], 0)
        self.assertIn("not finite", report["error"])
        self.assertRegex(report["verdict"][0], r"blk\.0\.attn_q\.weight hold \d+ NaN and 0 infinite")
        self.assertIn("first appears in what goes into blk.0.attn_output.weight", report["verdict"][1])
        report = self.report(os.path.join(GGUF_BAD, "inf_norm.gguf"))
        self.assertEqual(report["weights"]["not_finite"], [{"tensor": "output_norm.weight", "nan": 0, "infinite": 1}])
        # A router of NaN stops the run at its layer, and what was seen until then is told.
        gguf = Gguf(MODELS / "mixtral.gguf")
        dims, dtype, payload = gguf.tensors["blk.1.ffn_gate_inp.weight"]
        gguf.tensors["blk.1.ffn_gate_inp.weight"] = (dims, dtype, struct.pack("<f", float("nan")) + payload[4:])
        report = self.report(gguf.write(self.folder / "nan.gguf"))
        self.assertEqual(report["weights"]["not_finite"], [{"tensor": "blk.1.ffn_gate_inp.weight", "nan": 1,
                                                            "infinite": 0}])
        self.assertIn("router of layer 1", report["error"])
        self.assertGreater(self.kinds(report)["ffn_down_exps"][0], 0)

    def test_numbers_beyond_f32(self):
        gguf = Gguf(LLAMA)
        for name in ("blk.1.attn_norm.weight", "blk.1.ffn_norm.weight"):
            dims, dtype, payload = gguf.tensors[name]
            self.assertEqual(dtype, DTYPE_F32)
            gguf.tensors[name] = (dims, dtype, struct.pack(f"<{dims[0]}f", *[3e38] * dims[0]))
        report = self.report(gguf.write(self.folder / "huge.gguf"))
        self.assertEqual(report["weights"]["not_finite"], [])
        self.assertTrue(any("pass F32's own range" in sentence for sentence in report["verdict"]), report["verdict"])

    def test_experts(self):
        gguf = Gguf(MODELS / "qwen3moe.gguf")
        dims, dtype, payload = gguf.tensors["blk.1.ffn_down_exps.weight"]
        self.assertEqual(dtype, DTYPE_F16)
        size = len(payload) // dims[2]
        gguf.tensors["blk.1.ffn_down_exps.weight"] = (dims, dtype, payload[:size] + bytes(size) + payload[2 * size:])
        # A router of zeros: ties go to the lower index, and the others never get a token.
        dims, dtype, payload = gguf.tensors["blk.0.ffn_gate_inp.weight"]
        gguf.tensors["blk.0.ffn_gate_inp.weight"] = (dims, dtype, bytes(len(payload)))
        report = self.report(gguf.write(self.folder / "experts.gguf"), "--tokens", golden("qwen3moe"))
        self.assertEqual(report["weights"]["zero_experts"], [{"tensor": "blk.1.ffn_down_exps.weight", "experts": [1]}])
        n_expert, n_used = dims[1], gguf.keys["qwen3moe.expert_used_count"][1]
        self.assertEqual(report["routers"][0]["never_picked"], list(range(n_used, n_expert)))
        verdict = " ".join(report["verdict"])
        self.assertIn("blk.1.ffn_down_exps.weight are all zeros (the first is 1)", verdict)
        self.assertIn("The router never picked some experts in ", verdict)
        self.assertIn("first in layer 0", verdict)

    def test_the_cache(self):
        gguf = Gguf(MODELS / "qwen2.gguf")
        for name, value in (("blk.1.attn_v.bias", 1e6), ("blk.0.attn_k.bias", 7e4)):
            dims, dtype, _ = gguf.tensors[name]
            gguf.tensors[name] = (dims, dtype, struct.pack(f"<{dims[0]}f", *[value] * dims[0]))
        report = self.report(gguf.write(self.folder / "cache.gguf"), "--tokens", golden("qwen2"))
        self.assertEqual([(v["over"] > 0, v["exponent"]) for v in report["values"]][1], (True, 4))
        self.assertEqual(report["values"][1]["over"], report["values"][1]["rows"])
        self.assertGreater(report["keys"][0]["over"], 0)
        self.assertEqual(report["keys"][1]["over"], 0)
        verdict = " ".join(report["verdict"])
        self.assertIn("The cache's values leave F16 in layers 1", verdict)
        self.assertIn("rows of keys, values", verdict)

    def test_usage(self):
        self.wrong_usage("doctor", LLAMA, "hello", mentions="-f")
        self.wrong_usage("doctor", LLAMA, "-f", "a", "--tokens", "b", mentions=["-f", "--tokens"])
        self.wrong_usage("doctor", LLAMA, "--precision", "f16", mentions="--precision")
        self.fails(1, "doctor", LLAMA, "--tokens", self.write("empty", ""), mentions="no tokens")
        self.fails(1, "doctor", "nosuch.gguf", mentions="nosuch.gguf")


if __name__ == "__main__":
    unittest.main()
