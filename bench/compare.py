#!/usr/bin/env python3
"""Measures mote and other engines on the same models, in turns, and prints medians, extremes and ratios.

usage: compare.py --mote PROGRAM [--peer NAME=LLAMA_BENCH]... [options] MODEL...

  MODEL         FILE.gguf; or what is made once and kept in the models' cache (MOTE_CACHE):
                synthetic:SHAPE[:DTYPE]      a model of make_synthetic.py: synthetic:moe-4b:Q4_K
                twin:FILE.gguf[:OPTIONS]     a mixture of experts made of a dense model: "twin:smollm2.gguf:--experts 8"

  -p N,...      tokens of the prompt (512)         -n N,...   tokens generated (128)
  -d N,...      tokens already in the context (0)  -t N       threads (2)
  -r N          rounds (5)                         -o md|json what goes to standard output (md)
  --json FILE   all samples, as JSON               --options NAME=TEXT  passed on to that engine (mote, or a peer)

A peer that fails on a model is left out of it, with its last words; where mote fails, so does this program. A round runs every engine once on every model; the order turns by one each round. The first engine is what the ratios
are of: mote / peer, above 1 where mote is faster.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
TOOLS = BENCH.parent / "tools"


class Failed(Exception):
    """An engine did not measure a model."""


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mote", required=True)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("-p", default="512")
    parser.add_argument("-n", default="128")
    parser.add_argument("-d", default="0")
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("-o", choices=["md", "json"], default="md")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--options", action="append", default=[])
    return parser.parse_args()


def make(command):
    """Runs a program that makes a model; its output."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"compare: {shlex.join(command)} ended with {result.returncode}")
    return result.stdout.strip()


def model_path(text):
    """The file of a model as the user names it; made, where it is one to be made."""
    kind, _, rest = text.partition(":")
    if kind == "twin":
        dense, _, options = rest.partition(":")
        return pathlib.Path(make([sys.executable, str(TOOLS / "cached_twin.py"), dense, *shlex.split(options)]))
    if kind != "synthetic":
        return pathlib.Path(text)
    shape, _, dtype = rest.partition(":")
    cache = make([sys.executable, str(TOOLS / "fetch_model.py"), "--cache"])
    path = pathlib.Path(cache) / "synthetic" / f"{shape}{'-' * bool(dtype)}{dtype.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(make([sys.executable, str(BENCH / "make_synthetic.py"), shape, str(path),
                    *(["--dtype", dtype] if dtype else [])]), file=sys.stderr)
    return path


def run(command):
    """A command's standard output."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failed(f"{shlex.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def test_name(entry):
    """llama-bench's name of a test: pp512, tg128, pp512 @ d1024."""
    prompt, generated = entry["n_prompt"], entry["n_gen"]
    name = "+".join(([f"pp{prompt}"] if prompt else []) + ([f"tg{generated}"] if generated else []))
    return name + (f" @ d{entry['n_depth']}" if entry.get("n_depth") else "")


def measure(engine, is_mote, model, options):
    """Tokens a second of each test."""
    command = [*shlex.split(engine["program"])] + (["bench"] if is_mote else [])
    command += ["-m", str(model), "-p", options.p, "-n", options.n, "-t", str(options.t), "-r", "1", "-o", "json"]
    if options.d != "0": # older llama-bench programs lack the option
        command += ["-d", options.d]
    command += shlex.split(engine["options"])
    speed = "tokens_per_second" if is_mote else "avg_ts"
    output = run(command)
    try:
        return {test_name(entry): entry[speed] for entry in json.loads(output)}
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"{shlex.join(command)} printed no measurements ({error}): {output[-200:]}") from error


def collect(engines, models, options):
    """{model: {engine: {test: [tokens a second of each round]}}}"""
    results = {model.name: {name: {} for name in engines} for model in models}
    names, failed = list(engines), set()
    for number in range(options.r):
        turn = number % len(names)
        for model in models:
            for name in names[turn:] + names[:turn]:
                if (model, name) in failed:
                    continue
                print(f"round {number + 1} of {options.r}: {model.name}, {name}", file=sys.stderr)
                try:
                    speeds = measure(engines[name], name == names[0], model, options)
                except Failed as error:
                    if name == names[0]:
                        sys.exit(f"compare: {error}")
                    print(f"compare: {name} is left out of {model.name}: {error}", file=sys.stderr)
                    failed.add((model, name))
                    results[model.name][name].clear()
                    continue
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
    engines = {"mote": {"program": options.mote, "options": ""}}
    for peer in options.peer:
        name, separator, program = peer.partition("=")
        if not separator or name in engines:
            sys.exit(f"compare: --peer {peer} is not NAME=PROGRAM with a name of its own")
        engines[name] = {"program": program, "options": ""}
    for text in options.options:
        name, separator, more = text.partition("=")
        if not separator or name not in engines:
            sys.exit(f"compare: --options {text} is not NAME=TEXT with the name of an engine")
        engines[name]["options"] += f" {more}"
    models = [model_path(text) for text in options.models]
    if len({model.name for model in models}) < len(models):
        sys.exit("compare: two models have the same file name")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"compare: something else is running (load {load:.1f}): these figures will say little", file=sys.stderr)
    results = collect(engines, models, options)
    document = {"threads": options.t, "rounds": options.r, "engines": engines, "load": load, "results": results}
    if options.json:
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if options.o == "json":
        print(json.dumps(document, indent=1))
    else:
        print(f"Tokens a second, {options.t} threads: median (least to most) of {options.r}.\n")
        print(markdown(results, list(engines)))


if __name__ == "__main__":
    main()
