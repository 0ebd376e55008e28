#!/usr/bin/env python3
"""Measures mote and other engines on the same models, in turns, and prints medians, extremes and ratios.

usage: compare.py --mote PROGRAM [--peer NAME=LLAMA_BENCH]... [options] MODEL.gguf...

  -p N,...      tokens of the prompt (512)         -n N,...   tokens generated (128)
  -d N,...      tokens already in the context (0)  -t N       threads (2)
  -r N          rounds (5)                         -o md|json what goes to standard output (md)
  --json FILE   all samples, as JSON               --mote-options, --peer-options TEXT: passed on

A round runs every engine once on every model; the order turns by one each round. The first engine is what the ratios
are of: mote / peer, above 1 where mote is faster.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--mote", required=True)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("-p", default="512")
    parser.add_argument("-n", default="128")
    parser.add_argument("-d", default="0")
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("-o", choices=["md", "json"], default="md")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--mote-options", default="")
    parser.add_argument("--peer-options", default="")
    return parser.parse_args()


def run(command):
    """A command's standard output."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"compare: {shlex.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def test_name(entry):
    """llama-bench's name of a test: pp512, tg128, pp512 @ d1024."""
    prompt, generated = entry["n_prompt"], entry["n_gen"]
    name = "+".join(([f"pp{prompt}"] if prompt else []) + ([f"tg{generated}"] if generated else []))
    return name + (f" @ d{entry['n_depth']}" if entry.get("n_depth") else "")


def measure(program, is_mote, model, options):
    """Tokens a second of each test."""
    command = [*shlex.split(program)] + (["bench"] if is_mote else [])
    command += ["-m", str(model), "-p", options.p, "-n", options.n, "-t", str(options.t), "-r", "1", "-o", "json"]
    if options.d != "0": # older llama-bench programs lack the option
        command += ["-d", options.d]
    command += shlex.split(options.mote_options if is_mote else options.peer_options)
    speed = "tokens_per_second" if is_mote else "avg_ts"
    return {test_name(entry): entry[speed] for entry in json.loads(run(command))}


def collect(engines, options):
    """{model: {engine: {test: [tokens a second of each round]}}}"""
    results = {model.name: {name: {} for name in engines} for model in options.models}
    names = list(engines)
    for number in range(options.r):
        turn = number % len(names)
        for model in options.models:
            for name in names[turn:] + names[:turn]:
                print(f"round {number + 1} of {options.r}: {model.name}, {name}", file=sys.stderr)
                speeds = measure(engines[name], name == names[0], model, options)
                for test, speed in speeds.items():
                    results[model.name][name].setdefault(test, []).append(speed)
    return results


def spread(samples):
    return f"{statistics.median(samples):.1f} ({min(samples):.1f} to {max(samples):.1f})"


def markdown(results, engines):
    first, *peers = engines
    columns = ["model", "test", *engines, *[f"{first} / {peer}" for peer in peers]]
    rows = [columns, ["---", "---", *["--:"] * (len(columns) - 2)]]
    for model, by_engine in results.items():
        for test, samples in by_engine[first].items():
            row = [model, test, *[spread(by_engine[name][test]) if test in by_engine[name] else "—"
                                  for name in engines]]
            for peer in peers:
                other = by_engine[peer].get(test)
                row.append(f"{statistics.median(samples) / statistics.median(other):.2f}" if other else "—")
            rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    options = arguments()
    engines = {"mote": options.mote}
    for peer in options.peer:
        name, separator, program = peer.partition("=")
        if not separator or name in engines:
            sys.exit(f"compare: --peer {peer} is not NAME=PROGRAM with a name of its own")
        engines[name] = program
    results = collect(engines, options)
    document = {"threads": options.t, "rounds": options.r, "engines": engines, "results": results}
    if options.json:
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if options.o == "json":
        print(json.dumps(document, indent=1))
    else:
        print(f"Tokens a second, {options.t} threads: median (least to most) of {options.r}.\n")
        print(markdown(results, list(engines)))


if __name__ == "__main__":
    main()
