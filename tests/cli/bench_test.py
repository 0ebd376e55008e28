"""mote bench: the forms of its result, and that every option reaches it."""
import csv
import io
import json
import unittest

from cli import LLAMA, MODELS, CliTest, environment

SHORT = ("-p", "16", "-n", "4", "-r", "2", "-t", "1")


class Bench(CliTest):
    def results(self, *args, **more):
        return json.loads(self.text("bench", *args, "-o", "json", **more))

    def test_json(self):
        prompt, generation = self.results(LLAMA, *SHORT)
        self.assertEqual((prompt["test"], prompt["n_prompt"], prompt["n_gen"]), ("pp16", 16, 0))
        self.assertEqual((generation["test"], generation["n_prompt"], generation["n_gen"]), ("tg4", 0, 4))
        for result in (prompt, generation):
            n = result["n_prompt"] + result["n_gen"]
            speeds = [n / seconds for seconds in result["seconds"]]
            self.assertEqual(len(speeds), 2)
            mean = sum(speeds) / 2
            self.assertAlmostEqual(result["tokens_per_second"] / mean, 1, delta=1e-6)
            deviation = sum((s - mean) ** 2 for s in speeds) ** 0.5
            self.assertAlmostEqual(result["deviation"], deviation, delta=1e-6 * mean)
            self.assertGreater(result["limit"], 0)
            self.assertAlmostEqual(result["share_of_limit"] * result["limit"] / mean, 1, delta=1e-6)
            self.assertIn(result["bound"], ("memory", "compute"))
            self.assertEqual((result["n_threads"], result["n_depth"], result["n_batch"]), (1, 0, 512))
            self.assertEqual((result["precision"], result["kv"]), ("default", "f16"))
            self.assertEqual(result["size"], LLAMA.stat().st_size)

    def test_collectives(self):
        for result in self.results(LLAMA, *SHORT):
            self.assertEqual((result["n_devices"], result["collectives_per_token"]), (1, 0))
            self.assertEqual(result["collectives_share"], 0)
        mesh = ("-p", "16", "-n", "4", "-r", "2", "-t", "2", "--devices", "2")
        prompt, generation = self.results(LLAMA, *mesh)
        for result in (prompt, generation):
            self.assertEqual(result["n_devices"], 2)
            self.assertGreater(result["collectives_share"], 0)
            self.assertLess(result["collectives_share"], 1)
        # Two a layer, embeddings, and logits.
        self.assertAlmostEqual(generation["collectives_per_token"], 2 * 3 + 2, delta=1e-9)
        self.assertAlmostEqual(prompt["collectives_per_token"], (2 * 3 + 2) / 16, delta=1e-9)
        table = self.text("bench", LLAMA, *mesh).splitlines()
        self.assertRegex(table[3], r"2 devices, collectives [\d.]+%")
        rows = list(csv.DictReader(io.StringIO(self.text("bench", LLAMA, *mesh, "-o", "csv"))))
        self.assertEqual([row["n_devices"] for row in rows], ["2", "2"])
        self.assertTrue(all(0 < float(row["collectives_share"]) < 1 for row in rows), rows)

    def test_lists_and_models(self):
        results = self.results("-m", LLAMA, "-m", MODELS / "qwen3.gguf", "-p", "8,16", "-n", "2,3", "-d", "0,5",
                               "-t", "1,2", "-r", "1")
        self.assertEqual(len(results), 2 * 2 * 2 * 4)
        seen = {(r["model"].rsplit("/", 1)[1], r["n_threads"], r["n_depth"], r["n_prompt"], r["n_gen"])
                for r in results}
        self.assertEqual(len(seen), len(results))
        self.assertIn(("qwen3.gguf", 2, 5, 0, 3), seen)
        self.assertIn("tg3 @ d5", {r["test"] for r in results})
        two = self.results(LLAMA, MODELS / "qwen2.gguf", *SHORT, "-n", "0")
        self.assertEqual([r["test"] for r in two if "qwen2" in r["model"]], ["pp16", "tg4"])

    def test_either_alone(self):
        self.assertEqual([r["test"] for r in self.results(LLAMA, "-p", "8", "-n", "0", "-r", "1")], ["pp8"])
        self.assertEqual([r["test"] for r in self.results(LLAMA, "-p", "0", "-n", "2", "-r", "1")], ["tg2"])
        self.wrong_usage("bench", LLAMA, "-p", "0", "-n", "0", mentions="nothing")

    def test_md_and_csv(self):
        table = self.text("bench", LLAMA, *SHORT).splitlines()
        self.assertEqual(len(table), 4)
        self.assertTrue(all(line.count("|") == 9 for line in table), table)
        self.assertIn("llama.gguf", table[2])
        self.assertIn("pp16", table[2])
        self.assertRegex(table[3], r"tg4 \| +[\d.]+ ± [\d.]+ \| +\d+% \((memory|compute)\)")
        rows = list(csv.DictReader(io.StringIO(self.text("bench", LLAMA, *SHORT, "-o", "csv"))))
        self.assertEqual([row["test"] for row in rows], ["pp16", "tg4"])
        self.assertEqual(rows[0]["model"], str(LLAMA))
        self.assertGreater(float(rows[0]["tokens_per_second"]), 0)

    def test_settings_reach_the_engine(self):
        result = self.results(LLAMA, *SHORT, "--output", "json", "--precision", "f32", "-b", "8")[0]
        self.assertEqual((result["precision"], result["kv"], result["n_batch"]), ("f32", "f32", 8))
        self.assertEqual(self.results(MODELS / "qwen3.gguf", *SHORT, "--kv", "q8_0")[0]["kv"], "q8_0")
        self.assertEqual(self.results(LLAMA, *SHORT, env=environment(MOTE_ISA="c"))[0]["isa"], "c")

    def test_machine(self):
        self.assertIn("all threads", self.text("bench", "--machine"))
        self.assertRegex(self.text("bench", "--machine", "-t", "1"), r"1 thread.*int8.*F32.*GB/s")
        machine = json.loads(self.text("bench", "--machine", "-t", "1", "-o", "json"))
        for key in ("int8_ops", "f32_ops", "read_bytes"):
            self.assertGreater(machine[key], 1e6)
        rows = list(csv.DictReader(io.StringIO(self.text("bench", "--machine", "-t", "1", "-o", "csv"))))
        self.assertEqual(len(rows), 1)
        self.wrong_usage("bench", "--machine", LLAMA, mentions="--machine")

    def test_wrong_use(self):
        for option, value in (("-p", "x"), ("-p", "1,"), ("-n", "-1"), ("-t", "0"), ("-t", "1,0"), ("-r", "0"),
                              ("-d", "1e3"), ("-o", "xml"), ("-p", ",".join(["1"] * 65))):
            self.wrong_usage("bench", LLAMA, option, value, mentions=option)
        self.fails(1, "bench", LLAMA, "-p", "64", "-c", "32", "-o", "csv", mentions=["128", "32"])
        self.fails(1, "bench", self.folder / "none.gguf", "-o", "csv", mentions="none.gguf")


if __name__ == "__main__":
    unittest.main()
