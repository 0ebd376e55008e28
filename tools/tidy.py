#!/usr/bin/env python3
"""Runs clang-tidy (the checks of .clang-tidy) on every file of src/ that a build folder compiles, on all CPUs.

usage: tidy.py BUILD_FOLDER [PART OF A PATH]...

CLANG_TIDY names the program (clang-tidy-14).
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1])
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    files = sorted({(pathlib.Path(c["directory"]) / c["file"]).resolve() for c in commands})
    files = [f for f in files if ROOT / "src" in f.parents and f.suffix == ".c"]
    if len(sys.argv) > 2:
        files = [f for f in files if any(part in str(f) for part in sys.argv[2:])]
    if not files:
        print(f"tidy: {build} compiles no such file", file=sys.stderr)
        return 1

    def check(path):
        # gcc's warning flags that clang does not know are no finding.
        return path, subprocess.run([os.environ.get("CLANG_TIDY", "clang-tidy-14"), "--quiet", "-p", str(build),
                                     "--extra-arg=-Wno-unknown-warning-option", str(path)],
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    n_failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path, result in pool.map(check, files):
            if result.returncode != 0:
                n_failed += 1
                print(f"{path.relative_to(ROOT)}:\n{result.stdout if result.stdout.strip() else result.stderr}")
    print(f"tidy: {len(files)} files, {n_failed} with findings")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
