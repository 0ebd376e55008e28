#!/usr/bin/env python3
"""Checks that several builds of mote give the same logits, to the bit, on the tiny models of tests/data/models.

usage: same_logits.py MOTE MOTE...
       same_logits.py --wrapper CROSS_FILE     prints the exe_wrapper of a Meson cross file, for the next run

Each program may be a command of several words ("qemu-aarch64 -L /usr/aarch64-linux-gnu build-arm/mote").
"""
import ast
import configparser
import hashlib
import pathlib
import shlex
import subprocess
import sys
import tempfile

MODELS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "models"


def logits_sum(program, model, options, folder):
    output = folder / "logits.gguf"
    output.unlink(missing_ok=True)
    golden = model.with_suffix(".golden.gguf")
    subprocess.run([*shlex.split(program), "logits", str(model), "--tokens", str(golden), "-o", str(output), *options],
                   stdin=subprocess.DEVNULL, check=True)
    return hashlib.sha256(output.read_bytes()).hexdigest()


def main():
    programs = sys.argv[1:]
    if programs[:1] == ["--wrapper"]:
        cross = configparser.ConfigParser()
        cross.read(programs[1], encoding="utf-8")
        print(shlex.join(ast.literal_eval(cross["binaries"]["exe_wrapper"])))
        return 0
    if len(programs) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    models = [m for m in sorted(MODELS.glob("*.gguf")) if not m.name.endswith(".golden.gguf")]
    n_different = 0
    with tempfile.TemporaryDirectory() as name:
        for model in models:
            for options in ([], ["--precision", "f32"]):
                sums = {logits_sum(program, model, options, pathlib.Path(name)) for program in programs}
                n_different += len(sums) != 1
                print(f"{model.name} {' '.join(options)}: {'the same bits' if len(sums) == 1 else 'DIFFERENT BITS'}")
    print(f"{len(models)} models, {len(programs)} builds, {n_different} differences")
    return 1 if n_different or not models else 0


if __name__ == "__main__":
    sys.exit(main())
