"""How the program is called: help, versions, options, numbers, mistakes."""
import os
import subprocess
import unittest

from cli import LLAMA, MOTE, CliTest, environment

COMMANDS = ["run", "inspect", "tokenize", "template", "logits", "perplexity", "doctor", "bench"]


class Usage(CliTest):
    def test_no_command_says_what_there_is(self):
        done = self.run_mote()
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", done.stderr.decode())

    def test_help_goes_to_standard_output(self):
        for args in (["help"], ["--help"], ["-h"]):
            self.assertIn("Usage: mote COMMAND", self.text(*args))
        for command in COMMANDS:
            by_help = self.text("help", command)
            self.assertIn(f"Usage: mote {command}", by_help)
            self.assertEqual(by_help, self.text(command, "--help"))
            self.assertEqual(by_help, self.text(command, "-h"))

    def test_help_names_every_option_and_fits_a_screen(self):
        text = self.text("help", "run")
        for option in ("-m", "-p", "-f", "-n", "-c", "-t", "-s", "-b", "--temp", "--top-k", "--top-p", "--min-p",
                       "--ignore-eos", "--raw", "--no-special", "--precision", "--force", "-ctk", "-ctv", "--help"):
            self.assertRegex(text, rf"(?m)^  (\S+, )*{option}[ ,]")
        for command in COMMANDS:
            for line in self.text("help", command).splitlines():
                self.assertLessEqual(len(line), 110, line)

    def test_version(self):
        self.assertRegex(self.text("--version"), r"^mote \d+\.\d+\.\d+ ")
        self.assertEqual(self.text("--version"), self.text("version"))

    def test_unknown_command(self):
        self.wrong_usage("rnu", mentions="did you mean run?")
        self.wrong_usage("perplexty", mentions="did you mean perplexity?")
        self.wrong_usage("model.gguf", mentions="did you mean mote run model.gguf?")
        self.assertNotIn("did you mean", self.wrong_usage("xyzzy"))
        self.wrong_usage("--frobnicate", mentions="--frobnicate")
        self.wrong_usage("help", "rnu", mentions="did you mean run?")

    def test_unknown_option(self):
        for typed, meant in (("--tmp", "--temp"), ("--top_k", "--top-k"), ("--topk", "--top-k"),
                             ("--ingore-eos", "--ignore-eos"), ("--thread", "--threads"), ("--temprature", "--temp"),
                             ("--hlep", "--help"), ("--prec", "--precision"), ("--tmp=1", "--temp")):
            self.wrong_usage("run", LLAMA, typed, "1", mentions=["unknown option", f"did you mean {meant}"])
        self.assertNotIn("did you mean", self.wrong_usage("run", LLAMA, "-x", mentions="unknown option -x"))
        for command in COMMANDS:
            self.wrong_usage(command, "--no-such-thing", mentions=["unknown option --no-such-thing", f"help {command}"])

    def test_numbers(self):
        for option, value, allowed in (
                ("-t", "0", "from 1 to"), ("-t", "-1", "from 1 to"), ("-t", "two", "a whole number"),
                ("-t", "1.5", "a whole number"), ("-t", "", "a whole number"), ("-t", " 1", "a whole number"),
                ("-t", "0x2", "a whole number"), ("-t", "99999999999999999999", "from 1 to"),
                ("-c", "1e9", "a whole number"), ("-c", "1000000000", "to 16777216"), ("-c", "-5", "from 0"),
                ("-b", "0", "from 1"), ("-n", "-2", "from -1"), ("-n", "2147483648", "to 2147483647"),
                ("-s", "-2", "from -1"), ("-s", "9223372036854775808", "a whole number"),
                ("--temp", "nan", "a number from 0"), ("--temp", "inf", "a number from 0"),
                ("--temp", "-0.1", "a number from 0"), ("--temp", "1e999", "a number from 0"),
                ("--temp", "0,5", "a number from 0"), ("--temp", "0x1p3", "a number"), ("--temp", "1.5.2", "a number"),
                ("--top-k", "-1", "from 0"), ("--top-p", "1.01", "from 0 to 1"), ("--top-p", "-1", "from 0 to 1"),
                ("--min-p", "2", "from 0 to 1"), ("--min-p", "x", "from 0 to 1"),
                ("--precision", "f64", "one of: default f32 bf16 f16 q8"), ("--precision", "", "one of"),
                ("--precision", "attn=f64", "one of"), ("--precision", "=f32", "one of"),
                ("--precision", "f32,", "one of"), ("--precision", "f32,,bf16", "one of"),
                ("--precision", "attn=", "one of"), ("--kv", "q8", "did you mean q8_0?"),
                ("-ctk", "f64", "one of"), ("-ctv", "", "one of"),
                ("--devices", "0", "from 1 to 8, or one of: numa"), ("--devices", "9", "from 1 to 8"),
                ("--devices", "-1", "from 1 to 8"), ("--devices", "abc", "or one of: numa"),
                ("--devices", "", "or one of: numa"), ("--split", "1,,1", "separated by commas"),
                ("--split", "1,x", "separated by commas"), ("-ts", "-1,2", "numbers from 0"),
                ("--tensor-split", "nan,1", "separated by commas")):
            self.wrong_usage("run", LLAMA, option, value, mentions=[option, f'"{value}"', allowed])
        for option in ("-t", "-c", "-p", "--temp", "--kv"):
            self.wrong_usage("run", LLAMA, option, mentions=[option, "needs a value"])
        self.wrong_usage("run", LLAMA, "--raw=1", mentions=["--raw", "no value"])

    def test_numbers_do_not_depend_on_the_locale(self):
        for name in ("de_DE.UTF-8", "C", "POSIX"):
            env = environment(LC_ALL=name, LANG=name)
            args = ("run", LLAMA, "--raw", "-p", "a", "-n", "1", "--temp")
            self.ok(*args, "0.5", env=env)
            self.fails(2, *args, "0,5", env=env)

    def test_forms_of_options(self):
        long = self.ok("run", LLAMA, "--raw", "--prompt=The", "--predict=3", "--temp=0")
        self.assertEqual(long, self.ok("run", "--raw", "-p", "The", "-n", "3", "--temp", "0", "--", LLAMA))
        # The last one counts, and a value may look like an option.
        self.assertEqual(long, self.ok("run", LLAMA, "--raw", "-p", "The", "-n", "9", "-n", "3", "--temp", "0"))
        self.ok("run", LLAMA, "--raw", "-p", "--temp", "-n", "1")

    def test_missing_and_superfluous_arguments(self):
        for command in ("run", "inspect", "tokenize", "logits", "perplexity", "doctor", "bench"):
            self.wrong_usage(command, mentions="model")
        self.wrong_usage("run", LLAMA, "hello", mentions="-p")
        self.wrong_usage("run", LLAMA, "-p", "a", "-f", "b", mentions=["-p", "-f"])
        self.wrong_usage("run", LLAMA, "a", "b", mentions="quotes")
        self.wrong_usage("logits", LLAMA, mentions="--tokens")
        self.wrong_usage("logits", LLAMA, "--tokens", "x", mentions="-o")

    def test_control_characters_in_arguments_do_not_reach_the_terminal(self):
        message = self.wrong_usage("run", LLAMA, "--\x1b[31m")
        self.assertNotIn("\x1b", message)
        self.assertIn("\\x1b", message)
        self.assertNotIn("\x1b", self.fails(1, "run", "no\x1b[31mfile", "-p", "a"))

    def test_isa(self):
        out = self.ok("run", LLAMA, "--raw", "-p", "The", "-n", "4", "--temp", "0")
        forced = self.run_mote("run", LLAMA, "--raw", "-p", "The", "-n", "4", "--temp", "0", "-v",
                               env=environment(MOTE_ISA="c"))
        self.assertEqual((forced.returncode, forced.stdout), (0, out))
        self.assertIn("(c, ", forced.stderr.decode())
        for command in (["run", LLAMA, "--raw", "-p", "a", "-n", "1"], ["bench", "--machine"]):
            message = self.run_mote(*command, env=environment(MOTE_ISA="altivec")).stderr.decode()
            self.assertIn("altivec", message)
            self.assertRegex(message, r"\bc\b")

    def test_standard_output_that_cannot_be_written(self):
        for args in (["help"], ["tokenize", LLAMA, "a"], ["run", LLAMA, "--raw", "-p", "a", "-n", "2"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([*MOTE, *map(str, args)], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn(b"cannot write to standard output", done.stderr)

    def test_a_reader_that_has_enough(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as out:
            done = subprocess.run([*MOTE, "run", str(LLAMA), "--raw", "-p", "a", "--ignore-eos"], stdout=out,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), timeout=60,
                                  check=False)
        self.assertEqual(done.stderr, b"")
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
