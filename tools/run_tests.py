#!/usr/bin/env python3
"""Runs Meson's tests, then says what was skipped and why, and how many passed.

usage: run_tests.py BUILD_FOLDER [OPTION OF meson test]...

A test that leaves something out prints a line that begins with "skipped"; a test that Meson itself counts as skipped
(status 77) without such a line counts as failed, since nobody would know why.
"""
import json
import pathlib
import subprocess
import sys

PASSED = {"OK", "EXPECTEDFAIL"}


def skip_lines(test):
    lines = (test.get("stdout") or "").splitlines() + (test.get("stderr") or "").splitlines()
    return [line.strip() for line in lines if line.strip().lower().startswith("skipped")]


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1])
    log = build / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    status = subprocess.run(["meson", "test", "-C", str(build), "--print-errorlogs", *sys.argv[2:]],
                            stdin=subprocess.DEVNULL, check=False).returncode
    if not log.exists():
        print("no test ran: 0 passed, 1 failed")
        return status or 1
    tests = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line]
    passed = failed = skipped = 0
    for test in tests:
        reasons = list(dict.fromkeys(skip_lines(test)))
        for reason in reasons:
            print(f"{test['name']}: {reason}")
        if test["result"] in PASSED:
            passed += 1
        elif test["result"] == "SKIP" and reasons:
            skipped += 1
        else:
            failed += 1
            print(f"{test['name']}: {test['result']}{'' if reasons else ' (no reason given)' * (test['result'] == 'SKIP')}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped (reasons above)" if skipped else ""))
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
