"""What a person at a terminal sees, by way of a pseudo-terminal: no control characters of a model, progress only where it
helps, a newline at the end."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unittest

from cli import LLAMA, MODELS, MOTE, CliTest, environment

RUN = ("run", LLAMA, "--raw", "--temp", "0", "-p", "The", "-n", "100", "--ignore-eos")


class Terminal(CliTest):
    def on_terminal(self, *args, out=True, err=True, term="xterm", columns=None, **more):
        """(what the terminal got, what the pipe got, the exit code); what is no terminal is a pipe."""
        try:
            ours, theirs = pty.openpty()
        except OSError as problem:  # a root folder without /dev/pts
            print(f"skipped: what a terminal shows: there is none to be had here: {problem}")
            self.skipTest(str(problem))
        if columns:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = environment(TERM=term, **more)
        with subprocess.Popen([*MOTE, *map(str, args)], stdin=subprocess.DEVNULL, env=env,
                              stdout=theirs if out else subprocess.PIPE,
                              stderr=theirs if err else subprocess.PIPE) as process:
            os.close(theirs)
            shown = b""
            while True:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    part = b""
                if not part:
                    break
                shown += part
            piped = (process.stderr.read() if out and not err else process.stdout.read() if not out else b"")
            code = process.wait(timeout=60)
        os.close(ours)
        return shown.replace(b"\r\n", b"\n"), piped, code

    def test_an_answer(self):
        plain = self.ok(*RUN)
        shown, errors, code = self.on_terminal(*RUN, err=False)
        self.assertEqual((code, errors), (0, b""))
        self.assertTrue(shown.endswith(b"\n"))
        # The tiny model's answer is random bytes: some are control characters, and no terminal gets them.
        self.assertTrue(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", plain), plain)
        self.assertFalse(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", shown), shown)

    def test_decoded_text(self):
        ids = " ".join(map(str, b"a\x1b[2Jb\tc\nd\x07\xc2\x9be\xe2\x82\xac\xff"))
        shown, _, _ = self.on_terminal("tokenize", LLAMA, "--decode", ids)
        self.assertEqual(shown.expandtabs(1).replace(b" ", b"\t"),
                         b"a\\x1b[2Jb\tc\nd\\x07\\xc2\\x9be\xe2\x82\xac\\xff")

    def test_timings_on_a_terminal_only(self):
        shown, answer, _ = self.on_terminal(*RUN, out=False)
        self.assertIn(b"answer: 100 tokens", shown)
        self.assertEqual(answer, self.ok(*RUN))

    def test_bars_of_the_doctor(self):
        examine = ("doctor", MODELS / "llama-overflow.gguf", "--tokens", MODELS / "llama-overflow.golden.gguf")
        plain = self.ok(*examine)
        for settings in ({"term": "dumb"}, {"NO_COLOR": "1"}):
            shown, errors, code = self.on_terminal(*examine, err=False, columns=80, **settings)
            self.assertEqual((shown, errors, code), (plain, b"", 0))
        shown, _, _ = self.on_terminal(*examine, err=False, columns=80)
        self.assertRegex(shown, rb"(?m)^    0  #{20,}\x1b\[31m#+ +\x1b\[0m  2\^17\.3")
        self.assertEqual(re.sub(rb"\x1b\[\d+m", b"", shown), plain)
        for columns in (1, 25, 40, 60, 120):
            shown, _, code = self.on_terminal(*examine, err=False, columns=columns, NO_COLOR="1")
            self.assertEqual(code, 0)
            bars = shown.split(b"By kind")[0].splitlines()[2:]
            self.assertLessEqual(max(map(len, bars[1:])), max(columns, 40), columns)
            self.assertEqual(b"##" in shown, columns >= 40)

    def test_dumb_terminals_and_no_color(self):
        file = self.write("text.txt", "The quick brown fox. " * 2000)  # about a second
        measure = ("perplexity", LLAMA, "-f", file, "-c", "64", "-b", "1", "-t", "1", "--precision", "f32")
        plain = self.ok(*measure)
        for settings in ({"term": "dumb"}, {"NO_COLOR": "1"}):
            shown, answer, _ = self.on_terminal(*measure, out=False, **settings)
            self.assertFalse(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", shown), shown)
            self.assertEqual(answer, plain)
        shown, answer, _ = self.on_terminal(*measure, out=False)
        self.assertIn(b"\rmeasuring [", shown)
        self.assertIn(b"PPL ", shown)
        self.assertEqual(answer, plain)
        self.assertNotIn(b"\x1b", shown)


if __name__ == "__main__":
    unittest.main()
