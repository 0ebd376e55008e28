#!/usr/bin/env python3
"""Checks what the library shows and what it keeps: only mote_* is exported, and nothing in it is mutable and global.

usage: check_symbols.py LIBMOTE.so LIBMOTE.a
"""
import subprocess
import sys

# Counts merges for the tests that they are linear in the text; a thread's own.
ALLOWED = {"merge_steps"}


def nm(*arguments):
    """Rows (name, class, section) of nm's listing."""
    output = subprocess.run(["nm", "--format=sysv", *arguments], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 7 and fields[0] != "Name":
            yield fields[0], fields[2], fields[6]


def is_mutable(section):
    """.data and .bss in all their spellings; .data.rel.ro is constant once relocated."""
    return section.startswith((".data", ".bss", ".tdata", ".tbss", "*COM*")) and ".rel.ro" not in section


def main():
    shared, static = sys.argv[1:]
    exported = {name for name, _, _ in nm("-D", "--defined-only", shared)}
    # The linker's own, on some systems.
    foreign = sorted(name for name in exported if not name.startswith("mote_") and name not in {"_init", "_fini"})
    mutable = sorted({f"{name} ({section})" for name, _, section in nm("--defined-only", static)
                      if is_mutable(section) and name not in ALLOWED})
    for name in foreign:
        print(f"exported, but not mote_*: {name}")
    for name in mutable:
        print(f"mutable and global: {name}")
    if not any(name.startswith("mote_") for name in exported):
        print("exports no mote_*: is this the library?")
        return 1
    print(f"{len(exported)} exported, {len(foreign)} foreign, {len(mutable)} mutable")
    return 1 if foreign or mutable else 0


if __name__ == "__main__":
    sys.exit(main())
