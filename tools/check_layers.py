#!/usr/bin/env python3
"""Checks that no file includes a layer that its own may not know.

usage: check_layers.py [SOURCE_ROOT]

LAYERS is the whole rule: a layer, and the layers whose headers it may include (its own always). docs/architecture.md
says why. Programs (cli, server) see the library as any user does: through include/mote.h alone.
"""
import pathlib
import re
import sys

PUBLIC = "mote.h"
LAYERS = {
    "base": [],
    "tensor": ["base"],
    "gguf": ["base", "tensor"],
    "cpu": ["base", "tensor"],
    "mesh": ["base", "tensor"],
    "model": ["base", "tensor", "gguf"],
    "text": ["base", "tensor", "gguf"],
    "engine": ["base", "tensor", "gguf", "cpu", "mesh", "model", "text", PUBLIC],
    "cli": [PUBLIC],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(source, path):
    """The layer of a file under src/: its first folder."""
    return path.relative_to(source).parts[0]


def included_layer(source, path, bracket, name):
    """The layer that an include names; PUBLIC for the public header; None for a system header or one beside the file."""
    if name == PUBLIC:
        return PUBLIC
    for folder in ([path.parent] if bracket == '"' else []) + [source]:
        target = (folder / name).resolve()
        if target.is_file() and source in target.parents:
            return layer_of(source, target)
    return None


def check(source):
    problems = []
    n_includes = 0
    for path in sorted(source.rglob("*.[ch]")):
        layer = layer_of(source, path)
        where = path.relative_to(source.parent)
        if layer not in LAYERS:
            problems.append(f"{where}: no layer '{layer}' in tools/check_layers.py")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            n_includes += 1
            target = included_layer(source, path, *match.groups())
            if target not in (None, layer) and target not in LAYERS[layer]:
                allowed = ", ".join(LAYERS[layer]) or "nothing of mote's"
                problems.append(f"{where}:{number}: {layer} may include {allowed}, not {match.group(2)}")
    return problems, n_includes


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    problems, n_includes = check(root / "src")
    if n_includes == 0:
        problems.append(f"{root / 'src'}: no includes found: is this the source root?")
    for problem in problems:
        print(problem)
    print(f"{n_includes} includes, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
