#!/usr/bin/env python3
"""Installs the build into a folder of its own and uses it as a stranger would: by pkg-config, shared and static.

usage: check_install.py BUILD_FOLDER SOURCE_ROOT COMPILER...
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <mote.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    mote_error error;
    mote_model *model = NULL;
    printf("%s\n", mote_version());
    if (mote_model_open("no-such-file.gguf", NULL, &model, &error) == MOTE_OK || error.message[0] == '\0')
        return 1;
    return strstr(error.message, "no-such-file.gguf") == NULL;
}
"""


def run(command, **options):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def main():
    build, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    compiler = sys.argv[3:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        root = folder / "root"
        run(["meson", "install", "-C", str(build), "--no-rebuild", "--destdir", str(root)])
        files = {path.name: path for path in root.rglob("*")}
        missing = {"mote", "mote.h", "libmote.a", "libmote.so", "mote.pc"} - files.keys()
        if missing:
            sys.exit(f"not installed: {', '.join(sorted(missing))}")
        strays = [str(path.relative_to(root)) for path in root.rglob("*")
                  if path.is_file() and "mote" not in path.name]
        if strays:
            sys.exit(f"installed, and nobody's: {', '.join(strays)}")
        if (source / "include/mote.h").read_bytes() != files["mote.h"].read_bytes():
            sys.exit("the installed header is not the repository's")

        environment = dict(os.environ, PKG_CONFIG_PATH=str(files["mote.pc"].parent), PKG_CONFIG_SYSROOT_DIR=str(root),
                           LD_LIBRARY_PATH=str(files["libmote.so"].parent))
        version = run(["pkg-config", "--modversion", "mote"], env=environment).strip()
        (folder / "program.c").write_text(PROGRAM)
        flags = run(["pkg-config", "--cflags", "--libs", "mote"], env=environment).split()
        # Statically: the archive, and the system's own libraries, which are not under the root.
        private = run(["pkg-config", "--print-requires-private", "mote"], env=environment).split()
        private = run(["pkg-config", "--libs", *private]).split()
        archived = [str(files["libmote.a"]) if flag == "-lmote" else flag for flag in flags]
        for kind, flags in ("shared", flags), ("static", archived + private + ["-lm", "-pthread"]):
            program = folder / kind
            run([*compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", str(folder / "program.c"),
                 "-o", str(program), *flags])
            printed = run([str(program)], env=environment, cwd=folder).strip()
            if printed != version:
                sys.exit(f"{kind}: mote_version is {printed}, pkg-config says {version}")
            print(f"{kind}: ok")
        cxx = shutil.which("c++") or shutil.which("clang++-14")
        if cxx:
            run([cxx, "-x", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                 str(files["mote.h"])])
            print("C++: ok")
        else:
            print("skipped: the header as C++: no C++ compiler here")
    return 0


if __name__ == "__main__":
    sys.exit(main())
