"""Ranks on two hosts, which are two network namespaces: the bits of one process over a slow wire, and a wire that is cut.

Skipped, with the reason, where such hosts cannot be made.
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from hosts import Hosts, WhyNot
from ranks_test import DATA, LAUNCHER, LIMIT, MOTE, RanksTest, environment, is_mpich, limit_now, ranks_environment

MODEL = DATA / "models" / "qwen3moe.gguf"
DELAY = 0.001  # seconds, each way


class HostsTest(RanksTest):
    def setUp(self):
        super().setUp()
        if is_mpich():
            # Both ranks wait in an exchange; the cause is not known. Open MPI does not show it.
            why = "MPICH's UCX was seen to stall between namespaces"
            print(f"skipped: {self.id()}: {why}")
            self.skipTest(why)
        try:
            self.hosts = Hosts(DELAY)
            self.hosts.__enter__()
        except WhyNot as why:
            print(f"skipped: {self.id()}: {why}")
            self.skipTest(str(why))
        self.addCleanup(self.hosts.__exit__)
        self.agent = self.hosts.write_agent(self.folder / "agent")

    def command(self, n, command):
        """A launcher on the first host that starts n ranks, in turns on both."""
        slots = ",".join(f"{address}:{(n + 1) // 2}" for address in self.hosts.addresses)
        line = [*self.hosts.open_mpi(LAUNCHER, self.agent), "-host", slots, "--map-by", "node"]
        return self.hosts.on(0, [*line, "-n", str(n), *command])

    def test_the_bits_of_one_process(self):
        tokens = MODEL.with_name("qwen3moe.golden.gguf")
        out = [self.folder / name for name in ("one.gguf", "many.gguf")]
        command = [*MOTE, "logits", MODEL, "--tokens", tokens, "-t", "1", "-o"]
        subprocess.run([*map(str, command), str(out[0])], env=environment(), check=True, capture_output=True)
        for n in (2, 4):
            out[1].unlink(missing_ok=True)
            done = subprocess.run(self.command(n, [*command, out[1]]), env=ranks_environment(), capture_output=True,
                                  timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done)
            self.same(out[1].read_bytes(), out[0].read_bytes(), f"{n} ranks")

    def speed(self, command):
        done = subprocess.run([*map(str, command)], env=ranks_environment(), capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)[0]["tokens_per_second"]

    def test_the_wire_is_slow(self):
        """Else these tests would test nothing: a token waits for the wire at least twice a layer, of which there are two."""
        bench = [*MOTE, "bench", MODEL, "-t", "1", "-p", "0", "-n", "20", "-r", "1", "-o", "json"]
        most = 1 / (4 * DELAY)
        self.assertGreater(self.speed(bench), most)
        self.assertLess(self.speed(self.command(2, bench)), most)

    def test_a_wire_that_is_cut(self):
        command = [*MOTE, "bench", MODEL, "-t", "1", "-p", "0", "-n", "900", "-r", "1000"]
        with open(self.folder / "said", "w+b") as said:
            with subprocess.Popen(self.command(2, command), env=ranks_environment(), stdout=said, stderr=said) as process:
                pids = self.ranks(2)
                self.wait_for_words(self.folder / "said")
                time.sleep(1)
                self.hosts.wire.cut()
                started = time.monotonic()
                while any(map(is_alive, pids)) and time.monotonic() - started < 3 * LIMIT:
                    time.sleep(0.1)
                took = time.monotonic() - started
                # Launchers wait long for a host that they do not reach.
                for name in self.hosts.names:
                    self.hosts.end_all(name)
                process.wait(timeout=20)
            said.seek(0)
            text = said.read()
        self.assertLess(took, limit_now(), text)
        self.assertIn(f"rank 1 (on {self.hosts.names[1]}) has not answered".encode(), text)

    def wait_for_words(self, path):
        """Its table's head says that it measures. Before, MPI begins, which has limits of its own."""
        end = time.monotonic() + 60
        while b"| model" not in path.read_bytes() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertIn(b"| model", path.read_bytes())

    def ranks(self, n):
        """The processes of mote, once there are n."""
        end = time.monotonic() + 30
        found = []
        while len(found) < n and time.monotonic() < end:
            time.sleep(0.1)
            found = [pid for name in self.hosts.names for pid in self.hosts.pids(name) if is_mote(pid)]
        self.assertEqual(len(found), n)
        return found


def is_mote(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(MOTE[-1])
    except OSError:
        return False


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # hosts are taken down
    unittest.main()
