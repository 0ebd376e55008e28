#!/bin/sh
# Builds the fuzzers (tests/fuzz) with clang, AddressSanitizer and UBSan, and runs each for a while.
#
# usage: fuzz.sh BUILD_FOLDER SECONDS [NAME]...
#
# NAME: gguf, jinja …; all by default. As many run at a time as there are CPUs. What they learn is kept in
# BUILD_FOLDER/corpus; what fails is kept in BUILD_FOLDER/findings, and the status is 1.
set -eu
build=${1:?usage: fuzz.sh BUILD_FOLDER SECONDS [NAME]...}
seconds=${2:?usage: fuzz.sh BUILD_FOLDER SECONDS [NAME]...}
shift 2
source=$(cd "$(dirname "$0")/.." && pwd)

if [ ! -f "$build/build.ninja" ]; then
    compiler=clang-14
    command -v $compiler >/dev/null || compiler=clang
    CC=$compiler meson setup "$build" "$source" -Dfuzz=true -Dtests=disabled -Db_sanitize=address,undefined \
        -Db_lundef=false -Dbuildtype=debugoptimized -Doptimization=2
fi
meson compile -C "$build" fuzzers
build=$(cd "$build" && pwd)

fuzz_one() {
    name=$1
    mkdir -p "$build/corpus/$name" "$build/findings"
    log=$build/findings/$name.log
    options="-max_total_time=$seconds -artifact_prefix=$build/findings/$name- -timeout=25 -rss_limit_mb=3000"
    dictionary=$source/tests/fuzz/$name.dict
    [ ! -f "$dictionary" ] || options="$options -dict=$dictionary"
    # shellcheck disable=SC2086 # a list of words
    if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$build/tests/fuzz/${name}_fuzz" $options \
        "$build/corpus/$name" "$source/tests/fuzz/seeds/$name" </dev/null >"$log" 2>&1; then
        runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
        echo "fuzz $name: $seconds s, ${runs:-?} runs, no finding"
    else
        tail -n 40 "$log"
        echo "fuzz $name: a finding, in $build/findings; all of it in $log"
        return 1
    fi
}

[ $# -gt 0 ] || for program in "$build"/tests/fuzz/*_fuzz; do
    name=$(basename "$program" _fuzz)
    set -- "$@" "$name"
done
cpus=$(nproc 2>/dev/null || echo 1)
failed=0
while [ $# -gt 0 ]; do
    running=
    while [ $# -gt 0 ] && [ "$(echo "$running" | wc -w)" -lt "$cpus" ]; do
        fuzz_one "$1" &
        running="$running $!"
        shift
    done
    for process in $running; do
        wait "$process" || failed=1
    done
done
exit $failed
