"""--devices and --split: several devices within this machine, in every command that computes."""
import os
import re
import unittest

from cli import LLAMA, MODELS, CliTest
from gguf import Gguf

GOLDEN = MODELS / "llama.golden.gguf"
MESHES = (["--devices", "1"], ["--devices", "2"], ["--devices", "3", "-t", "2"], ["--devices=8", "-t", "3"],
          ["--devices", "2", "--split", "3,1"], ["-ts", "3,1"], ["--tensor-split", "50,25,25", "-b", "5"],
          ["--split", "0,1,1", "-t", "4"], ["--devices", "numa"])


class Devices(CliTest):
    def command(self, *args):
        """Standard output of a command, whatever it warns of."""
        done = self.run_mote(*args)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def logits_bytes(self, *args):
        out = self.folder / "out.gguf"
        self.command("logits", LLAMA, "--tokens", GOLDEN, "-o", out, *args)
        return out.read_bytes()

    def test_no_bit_depends_on_devices(self):
        expected = self.logits_bytes()
        for args in MESHES:
            self.same(self.logits_bytes(*args), expected, args)

    def test_every_command(self):
        text = self.write("text", "The quick brown fox jumps over the lazy dog. " * 8)
        for command in (["run", LLAMA, "--raw", "-p", "The", "-n", "8", "--seed", "7"],
                        ["perplexity", LLAMA, "-f", text, "-c", "32"],
                        ["perplexity", LLAMA, "-f", text, "-c", "32", "--compare", "f32"]):
            expected = self.command(*command)
            for args in MESHES:
                self.same(self.command(*command, *args), expected, (command, args))
        for args in (["--devices", "2"], ["-ts", "1,3"]):
            self.assertIn("tg4", self.text("bench", LLAMA, "-p", "8", "-n", "4", "-r", "1", *args))
            self.assertIn("all_reduce", self.text("inspect", LLAMA, "--plan", *args).replace(" ", "_"))

    def test_what_is_said(self):
        run = ["run", LLAMA, "--raw", "-p", "a", "-n", "1"]
        self.assertIn("rounded to eighths: 4/8, 2/8, 2/8", self.run_mote(*run, "--split", "50,30,20").stderr.decode())
        self.assertIn("no part of the model is on device 1, 2 (of 0 to 2)",
                      self.run_mote(*run, "--split", "1,0,0").stderr.decode())
        for exact in ("50,25,25", "3/1", "1,1"):
            self.ok(*run, "-ts", exact)  # nothing to say
        said = self.verbose(*run, "--devices", "2", "-t", "4")
        self.assertEqual(re.findall(r"device (\d): (\d) thread", said), [("0", "2"), ("1", "2")])
        self.assertIn("4 threads", said)
        self.assertIn("3 threads", self.verbose(*run, "--devices", "3", "-t", "1"))  # each has one

    @unittest.skipUnless(hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1,
                         "devices are put on CPUs of their own where there are two")
    def test_places(self):
        cpus = sorted(os.sched_getaffinity(0))
        run = ["run", LLAMA, "--raw", "-p", "a", "-n", "1", "--devices", "2", "-t", "2"]
        places = re.findall(r"device \d: 1 thread on CPUs (\S+) of NUMA node", self.verbose(*run))
        if not places:
            print("\nnothing is known of this machine's cores, or they are fewer than 2: no places to look at")
            return
        self.assertEqual(len(set(places)), 2)
        # Where one CPU is allowed nobody is put anywhere.
        only = {cpus[0]}
        said = self.verbose(*run, preexec_fn=lambda: os.sched_setaffinity(0, only))
        self.assertEqual(said.count("1 thread on any CPU"), 2, said)

    def test_mistakes(self):
        run = ["run", LLAMA, "--raw", "-p", "a", "-n", "1"]
        self.fails(1, *run, "--devices", "2", "--split", "1,1,1", mentions=["3 shares", "2 devices"])
        self.fails(1, *run, "--split", "0,0", mentions="must not all be zero")
        self.fails(1, *run, "--split", "1,1,1,1,1,1,1,1,1", mentions=["9", "at most 8"])
        for args in (["--devices", "2"], ["--devices", "numa"], ["-ts", "1,1"]):
            self.wrong_usage("doctor", LLAMA, *args, mentions="leave --devices and --split out")
        self.ok("doctor", LLAMA, "--devices", "1")


if __name__ == "__main__":
    unittest.main()
