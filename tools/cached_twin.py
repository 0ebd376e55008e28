#!/usr/bin/env python3
"""Makes a mixture-of-experts twin of a dense model once, and prints its path.

usage: cached_twin.py DENSE.gguf [OPTION OF make_moe_from_dense.py]...

Twins are kept in the folder twins/ of the models' cache (MOTE_CACHE, see fetch_model.py), where they appear whole or not
at all. Their names hold the options, and a hash of the options, the dense file's size and head, and the scripts: what a
changed script would make anew is made anew, and the older one is deleted.
"""
import contextlib
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

from fetch_model import cache_folder, existing_parent

TOOLS = pathlib.Path(__file__).resolve().parent
SCRIPTS = [TOOLS / "make_moe_from_dense.py", TOOLS / "gguf_file.py"]


def twin_name(dense, options):
    """(what every version of this twin begins with, the name)"""
    digest = hashlib.sha256()
    for script in SCRIPTS:
        digest.update(script.read_bytes())
    with open(dense, "rb") as file:
        digest.update(file.read(1 << 20))
    digest.update(repr((dense.stat().st_size, options)).encode())
    words = re.sub(r"[^a-z0-9]+", "-", " ".join(options).lower()).strip("-")
    begin = f"{dense.stem}-{words or 'plain'}."
    return begin, f"{begin}{digest.hexdigest()[:12]}.gguf"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    dense, options = pathlib.Path(sys.argv[1]), sys.argv[2:]
    try:
        folder = cache_folder() / "twins"
        begin, name = twin_name(dense, options)
        target = folder / name
        if not target.exists():
            needed = 3 * dense.stat().st_size # the largest, with F32 down projections
            if shutil.disk_usage(existing_parent(folder)).free < needed:
                print(f"cached_twin: {folder} has no room: {needed // 1000000} MB are needed. MOTE_CACHE=DIR names "
                      "another folder.", file=sys.stderr)
                return 1
            folder.mkdir(parents=True, exist_ok=True)
            print(f"making {target}", file=sys.stderr)
            status = subprocess.run([sys.executable, str(SCRIPTS[0]), str(dense), str(target), *options],
                                    stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
            if status != 0:
                return status
            for other in folder.glob(f"{begin}*.gguf"):
                if other != target:
                    with contextlib.suppress(FileNotFoundError):
                        other.unlink()
    except OSError as error:
        print(f"cached_twin: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
