"""mote template: chat templates, one or a line a case."""
import json
import unittest

from cli import TEMPLATE, CliTest, json_lines
from gguf import STRING

MESSAGES = [{"role": "user", "content": "Hi €\0\x1b"}]


class Template(CliTest):
    def setUp(self):
        super().setUp()
        self.chat = self.model(tokenizer__chat_template=(STRING, TEMPLATE))

    def lines(self, cases, *args, code=0):
        data = b"".join(c if isinstance(c, bytes) else json.dumps(c).encode() + b"\n" for c in cases)
        done = self.run_mote("template", *args, "--jsonl", stdin=data)
        self.assertEqual((done.returncode, done.stderr), (code, b""), done)
        return json_lines(done.stdout)

    def test_json_lines(self):
        self.assertEqual(self.lines([
            {"template": "{{ x }}!", "input": {"x": "é\0"}},
            {"template": "{% for i in range(n) %}{{ i }}{% endfor %}", "input": {"n": 3}},
            {"template": "", "input": {}},
        ]), [{"output": "é\0!"}, {"output": "012"}, {"output": ""}])

    def test_an_answer_is_one_line_to_every_reader(self):
        odd = "a\u2028b\u0085c\x0bd\u2029\U0001f600"
        data = json.dumps({"template": "{{ x }}", "input": {"x": odd}}).encode()
        out = self.ok("template", "--jsonl", stdin=data)
        self.assertEqual(len(out.decode().splitlines()), 1)
        self.assertEqual(json.loads(out), {"output": odd})

    def test_the_models_template(self):
        case = {"input": {"messages": MESSAGES, "add_generation_prompt": True}}
        expected = [{"output": "<|bos|>user:Hi €\0\x1b<|eos|>assistant:"}]
        self.assertEqual(self.lines([case], self.chat), expected)
        self.assertEqual(self.lines([{"template": None, **case}], "-m", self.chat), expected)
        self.assertEqual(self.lines([{"template": "{{ bos_token }}", "input": {}}], self.chat), [{"output": "<|bos|>"}])
        self.assertIn("error", self.lines([case], code=0)[0])

    def test_errors_are_answers(self):
        answers = self.lines([{"template": "{{ raise_exception('so there') }}", "input": {}},
                              {"template": "{% if %}", "input": {}}, {"template": "{{ 1 + 'a' }}", "input": {}},
                              {"template": "ok", "input": {}}])
        self.assertIn("so there", answers[0]["error"])
        self.assertTrue(all(list(a) == ["error"] for a in answers[:3]), answers)
        self.assertEqual(answers[3], {"output": "ok"})

    def test_wrong_lines(self):
        answers = self.lines([b"{\n", {"template": 1, "input": {}}, {"template": "a"}, {"template": "a", "input": []},
                              {"template": "a", "input": {}}], code=1)
        self.assertTrue(all(list(a) == ["error"] for a in answers[:4]), answers)
        self.assertEqual(answers[4], {"output": "a"})

    def test_now(self):
        case = {"template": "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "input": {}}
        for now in ("1767323045", "2026-01-02T03:04:05", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z"):
            self.assertEqual(self.lines([case], "--now", now), [{"output": "2026-01-02 03:04:05"}])
        for now, expected in (("2024-02-29", "2024-02-29 00:00:00"), ("0", "1970-01-01 00:00:00"),
                              ("1969-12-31T23:59:59", "1969-12-31 23:59:59"), ("-1", "1969-12-31 23:59:59")):
            self.assertEqual(self.lines([case], "--now", now), [{"output": expected}])
        self.assertRegex(self.lines([case])[0]["output"], r"^20\d\d-")
        for bad in ("yesterday", "2026-13-01", "2026-02-29", "2026-1-2", "2026-01-02T24:00:00", "1e9", ""):
            self.wrong_usage("template", "--jsonl", "--now", bad, mentions="--now")

    def test_one_input(self):
        source = self.write("chat.jinja", "{% for m in messages %}[{{ m.content }}]{% endfor %}"
                                          "{{ '>' if add_generation_prompt }}")
        messages = self.write("messages.json", json.dumps(MESSAGES))
        whole = self.write("input.json", json.dumps({"messages": MESSAGES}))
        self.assertEqual(self.text("template", "--template", source, "-f", messages), "[Hi €\0\x1b]>")
        self.assertEqual(self.text("template", "--template", source, "-f", whole), "[Hi €\0\x1b]")
        self.assertEqual(self.text("template", "--template", source, stdin=whole.read_bytes()), "[Hi €\0\x1b]")
        self.assertEqual(self.text("template", self.chat, "-f", messages), "<|bos|>user:Hi €\0\x1b<|eos|>assistant:")

    def test_failures(self):
        source = self.write("bad.jinja", "{{ raise_exception('so there') }}")
        self.fails(1, "template", "--template", source, stdin=b"{}", mentions="so there")
        self.fails(1, "template", "--template", source, stdin=b"{", mentions="JSON")
        self.fails(1, "template", "--template", source, stdin=b"1", mentions="object")
        self.fails(1, "template", self.model(name="plain.gguf"), stdin=b"{}", mentions="template")
        self.wrong_usage("template", mentions="which template")
        self.wrong_usage("template", "--jsonl", "-f", "x", mentions="-f")


if __name__ == "__main__":
    unittest.main()
