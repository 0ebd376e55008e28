#!/usr/bin/env python3
"""Checks what mote expects of a mesh (inspect --plan --link) against runs: two ranks on two network namespaces, joined by a
wire that delays packets. As root. Where hosts cannot be made, says why, and compares with two devices of one process, whose
link is memory.

usage: mesh_model.py [--mote PROGRAM] [--delays 0,0.0005,0.001,0.002] [-p N] [-n N] MODEL

The speed of one device and the latency of the wire by itself (its first delay, usually 0) are measured, and the model is
asked for the other delays.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

THREADS_LATENCY, THREADS_BANDWIDTH = 0.3e-6, 10  # s, GB/s: docs/mesh.md
ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("MOTE", str(ROOT / "build" / "mote"))
sys.path[:0] = [str(ROOT / "tests" / "mpi"), str(ROOT / "tests" / "cli")]
sys.dont_write_bytecode = True
from hosts import Hosts, WhyNot  # noqa: E402
from ranks_test import ranks_environment  # noqa: E402


def run(command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def bench(options, command=None, threads=("-t", "1"), **more):
    line = [options.mote, "bench", options.model, *threads, "-p", options.p, "-n", options.n, "-r", "3", "-o", "json"]
    prompt, decode = run(command(line) if command else line, **more)
    return prompt["tokens_per_second"], decode["tokens_per_second"], decode["collectives_per_token"]


def expect(options, latency, speed, bandwidth=None):
    line = [options.mote, "inspect", options.model, "--plan", "--json", "--devices", "2", "-b", options.p, "--link",
            f"{latency * 1e9:.0f}ns,{bandwidth or options.bandwidth:.3f}GB/s", "--speed", f"{speed[0]},{speed[1]}"]
    expected = run(line)["expected"]
    return expected["prompt_tokens_per_second"], expected["decode_tokens_per_second"]


def print_row(name, measured, expected):
    print(f"{name:>9} | {measured[1]:9.1f} {expected[1]:9.1f} {expected[1] / measured[1]:6.2f} | "
          f"{measured[0]:9.1f} {expected[0]:9.1f} {expected[0] / measured[0]:6.2f}")


def within_a_process(options, one):
    """Two devices of one thread each: a meeting takes THREADS_LATENCY, and what is sent is read where it lies."""
    measured = bench(options, threads=("-t", "2", "--devices", "2"))
    print_row("threads", measured, expect(options, THREADS_LATENCY, one, THREADS_BANDWIDTH))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mote", default=os.environ["MOTE"])
    parser.add_argument("--delays", default="0,0.0005,0.001,0.002")
    parser.add_argument("--bandwidth", type=float, default=0.3, help="GB/s of the wire")
    parser.add_argument("-p", type=int, default=128)
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("model")
    options = parser.parse_args()
    one = bench(options)
    print(f"one device: prompt {one[0]:.0f}, decode {one[1]:.1f} tokens/s")
    print("delay, ms | decode: measured, expected | prompt: measured, expected")
    own = None  # the latency that the wire has by itself
    for delay in map(float, options.delays.split(",")):
        try:
            with Hosts(delay) as hosts, tempfile.TemporaryDirectory() as folder:
                agent = hosts.write_agent(pathlib.Path(folder) / "agent")

                def ranks(line):
                    return hosts.on(0, [*hosts.open_mpi("mpirun", agent), "-host",
                                        ",".join(f"{a}:1" for a in hosts.addresses), "--map-by", "node", "-n", "2", *line])
                measured = bench(options, ranks, env=ranks_environment())
        except WhyNot as why:
            print(f"no hosts can be made here: {why}")
            within_a_process(options, one)
            return
        if own is None:
            ideal = expect(options, 1e-9, one)
            own = max((1 / measured[1] - 1 / ideal[1]) / measured[2], 1e-9)
            print(f"the wire's own latency: {own * 1e6:.0f} us, from the first row")
        expected = expect(options, own + delay, one)
        print_row(f"{delay * 1e3:.2f}", measured, expected)


if __name__ == "__main__":
    main()
