"""mote tokenize: text to ids and back, in every form."""
import json
import resource
import subprocess
import unittest

from cli import BOS, EOS, LLAMA, MOTE, CliTest, environment, json_lines
from gguf import BOOL, STRING

TEXT = "The cat, wörld €😀"


class Tokenize(CliTest):
    def test_ids(self):
        self.assertEqual(self.text("tokenize", LLAMA, "--ids", "Hi!"), "72 105 33\n")
        self.assertEqual(self.ids("the"), [257 if i == 257 else i for i in self.ids("the")])
        self.assertLess(len(self.ids("the")), 3)  # merges
        self.assertEqual(self.text("tokenize", LLAMA, "--ids", ""), "\n")

    def test_pieces(self):
        lines = self.text("tokenize", LLAMA, "Hi x").splitlines()
        self.assertEqual([line.split() for line in lines], [["72", "H"], ["105", "i"], ["32", "Ġ"], ["120", "x"]])

    def test_count(self):
        self.assertEqual(int(self.text("tokenize", LLAMA, "--count", TEXT)), len(self.ids(TEXT)))

    def test_json(self):
        answer = json.loads(self.text("tokenize", LLAMA, "--json", "Hi\x01"))
        self.assertEqual(answer, {"ids": [72, 105, 1], "pieces": ["H", "i", "ā"]})

    def test_file_and_standard_input_as_they_are(self):
        path = self.write("text.txt", TEXT + "\n")
        expected = self.ids(TEXT + "\n")
        for args in (["-f", path], ["-f", "-"], []):
            ids = self.text("tokenize", LLAMA, "--ids", *args, stdin=(TEXT + "\n").encode())
            self.assertEqual([int(i) for i in ids.split()], expected)
        self.assertEqual(len(expected), len(self.ids(TEXT)) + 1)
        self.assertEqual(self.text("tokenize", "-m", LLAMA, "--ids", TEXT), self.text("tokenize", LLAMA, "--ids", TEXT))

    def test_bos(self):
        self.assertEqual(self.ids("Hi", "--bos"), [BOS, 72, 105])
        without = self.model(drop=["tokenizer.ggml.bos_token_id"], tokenizer__ggml__add_bos_token=(BOOL, False))
        done = self.run_mote("tokenize", without, "--ids", "--bos", "Hi")
        # A vocabulary of this kind may have a BOS by default; where it has none, that is said.
        self.assertTrue(done.returncode == 0 or b"BOS" in done.stderr, done)

    def test_special(self):
        self.assertEqual(self.ids("a<|eos|>", "--special"), [97, EOS])
        self.assertEqual(len(self.ids("a<|eos|>")), 8)

    def test_decode(self):
        ids = self.ids(TEXT)
        self.assertEqual(self.decode(ids).decode(), TEXT)
        self.assertEqual(self.ok("tokenize", LLAMA, "--decode", stdin=json.dumps(ids).encode()).decode(), TEXT)
        self.assertEqual(self.ok("tokenize", LLAMA, "--decode", "-f", self.write("ids", "72,105")), b"Hi")
        self.assertEqual(self.ok("tokenize", LLAMA, "--decode", f"72 {EOS} 105"), b"Hi")
        self.assertEqual(self.ok("tokenize", LLAMA, "--decode", "--special", f"72 {EOS} 105"), b"H<|eos|>i")
        self.assertEqual(self.ok("tokenize", LLAMA, "--decode", "255"), b"\xff")  # bytes, as they are
        for bad in ("1 x 2", "-1", "1.5", "4294967296"):
            self.fails(1, "tokenize", LLAMA, "--decode", "--", bad, mentions="no token id")
        self.fails(1, "tokenize", LLAMA, "--decode", "288", mentions="288")

    def test_pre(self):
        text = "it's 12345"
        odd = self.model(tokenizer__ggml__pre=(STRING, "nosuch"))
        self.fails(1, "tokenize", odd, text, mentions=["nosuch", "gpt-2"])
        self.assertEqual(self.ids(text, "--pre", "gpt-2", model=odd), self.ids(text))

    def test_invalid_utf8_is_no_crash(self):
        for bad in (b"\xff\xfe", b"a\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
            self.ok("tokenize", LLAMA, "--json", stdin=bad)

    def test_exclusive_forms(self):
        for a, b in (("--ids", "--count"), ("--json", "--decode"), ("--jsonl", "--ids")):
            self.wrong_usage("tokenize", LLAMA, a, b, "x", mentions="exclude")
        self.wrong_usage("tokenize", LLAMA, "a", "-f", "b", mentions="once")
        self.wrong_usage("tokenize", LLAMA, "--jsonl", "--special", mentions="parse_special")


class JsonLines(CliTest):
    def lines(self, cases, *args, code=0):
        data = b"".join(c if isinstance(c, bytes) else json.dumps(c).encode() + b"\n" for c in cases)
        done = self.run_mote("tokenize", LLAMA, "--jsonl", *args, stdin=data)
        self.assertEqual((done.returncode, done.stderr), (code, b""), done)
        self.assertTrue(done.stdout.endswith(b"\n"))
        return json_lines(done.stdout)

    def test_cases(self):
        self.assertEqual(self.lines([
            {"text": "Hi"}, {"text": ""}, {"text": "a\0b"}, {"text": "<|eos|>", "parse_special": True},
            {"text": "Hi", "add_special": True}, {"text": "Hi", "parse_special": False, "more": 1},
        ]), [{"ids": i} for i in ([72, 105], [], [97, 0, 98], [EOS], [BOS, 72, 105], [72, 105])])
        self.assertEqual(self.lines([{"text": TEXT}]), [{"ids": self.ids(TEXT)}])
        self.assertEqual(self.lines([json.dumps({"text": TEXT}, ensure_ascii=False).encode() + b"\r\n"]),
                         [{"ids": self.ids(TEXT)}])

    def test_eos(self):
        adds = self.model(tokenizer__ggml__add_eos_token=(BOOL, True))
        out = self.ok("tokenize", adds, "--jsonl", stdin=b'{"text": "Hi", "add_special": true}')
        self.assertEqual(json_lines(out), [{"ids": [BOS, 72, 105, EOS]}])

    def test_a_wrong_line_is_said_and_passed(self):
        wrong = [b"not json\n", b"[1]\n", b'{"text": 1}\n', b"{}\n", b'{"text": "\xff"}\n', b'{"text": "\\ud800"}\n',
                 b'{"text": "a", "parse_special": 1}\n', b'{"text": "a", "text": "b"}\n', b'{"text": "a"\n']
        answers = self.lines([*wrong, b"\n", {"text": "Hi"}], code=1)
        self.assertEqual(len(answers), len(wrong) + 1)
        for answer in answers[:-1]:
            self.assertEqual(list(answer), ["error"])
            self.assertTrue(answer["error"])
        self.assertEqual(answers[-1], {"ids": [72, 105]})

    def test_decode(self):
        answers = self.lines([{"ids": [72, EOS, 105]}, {"ids": [72, EOS], "special": True}, {"ids": [255]},
                              {"ids": []}], "--decode")
        self.assertEqual(answers, [{"text": "Hi", "hex": "4869"}, {"text": "H<|eos|>", "hex": b"H<|eos|>".hex()},
                                   {"text": None, "hex": "ff"}, {"text": "", "hex": ""}])
        answers = self.lines([{"ids": [-1]}, {"ids": [288]}, {"ids": "x"}, {"ids": [1.5]}], "--decode", code=1)
        self.assertTrue(all("error" in a for a in answers), answers)

    def test_a_long_line(self):
        text = "ab" * 500_000
        self.assertEqual(len(self.lines([{"text": text}])[0]["ids"]), len(text))

    def test_each_answer_comes_at_once(self):
        with subprocess.Popen([*MOTE, "tokenize", str(LLAMA), "--jsonl"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=environment()) as process:
            for text, ids in (("Hi", [72, 105]), ("H", [72])):
                process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
                process.stdin.flush()
                self.assertEqual(json.loads(process.stdout.readline()), {"ids": ids})
            process.stdin.close()
            self.assertEqual(process.wait(timeout=30), 0)


class Limits(CliTest):
    def test_a_line_that_memory_does_not_hold(self):
        limit = 200 << 20

        def set_limit():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        if self.run_mote("version", preexec_fn=set_limit).returncode != 0:
            self.skipTest("the program does not start in 200 MB of addresses (sanitizers, emulators)")
        done = self.run_mote("tokenize", LLAMA, "--jsonl", stdin=b'{"text": "a"}\n' + bytes(limit), preexec_fn=set_limit)
        self.assertEqual((done.returncode, done.stdout), (1, b'{"ids": [97]}\n'))
        self.assertIn(b"cannot read standard input", done.stderr)


if __name__ == "__main__":
    unittest.main()
