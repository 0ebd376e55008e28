#!/bin/sh
# Runs the program under valgrind on tiny models: no leak, no invalid access, no use of what was never set.
#
# usage: valgrind.sh BUILD_FOLDER
#
# The C kernels are forced, since valgrind knows no AVX-512.
set -eu
exec </dev/null
build=${1:?usage: valgrind.sh BUILD_FOLDER}
models=$(cd "$(dirname "$0")/../tests/data/models" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOTE_ISA=c
failed=0

# checked STATUS ARGUMENT...: `mote ARGUMENT...` must end with STATUS, and valgrind find nothing.
checked() {
    wanted=$1
    shift
    status=0
    valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible \
        --error-exitcode=99 "$build/mote" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" = "$wanted" ]; then
        echo "valgrind: mote $1 ${2##*/}: clean"
    else
        cat "$work/err"
        echo "valgrind: mote $*: status $status, not $wanted"
        failed=1
    fi
}

echo '1 2 3 4 5 6 7' >"$work/tokens"
for model in llama qwen3 gemma3; do
    model=$models/$model.gguf
    checked 0 inspect "$model" --json
    checked 0 inspect "$model" --plan
    checked 0 logits "$model" --tokens "$work/tokens" -o "$work/logits.gguf" -t 2
    checked 0 run "$model" --raw -p "Once upon a time" -n 4 -t 2
    checked 0 perplexity "$model" -f "$0" -c 16 --chunks 2 -t 2
    checked 0 tokenize "$model" "some text"
done
echo '{"template": "{% for m in messages %}{{ m.content | upper }}{% endfor %}", "input": {"messages": [{"content": "x"}]}}' \
    >"$work/cases"
checked 0 template --jsonl <"$work/cases"
checked 2 run --no-such-flag
checked 1 run "$work/absent.gguf" -p x
exit $failed
