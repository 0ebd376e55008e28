#!/bin/sh
# What `make demo-moe` shows: a mixture of experts whose down projections overflow F16, where it does, and an answer.
#
# usage: demo_moe.sh MOTE DENSE.gguf PROMPT
#
# The dense model's feed-forward is cut into 4 experts that compute the same, but the source of the down projections is
# 2^13 times larger and their weights are F16, so that an engine that rounds the source to F16 answers NaN.
set -eu
mote=$1 dense=$2 prompt=$3
python=${PYTHON:-python3}

show() {
    printf '\n$ %s' "$mote" >&2
    for argument in "$@"; do
        case $argument in
        *[!A-Za-z0-9_./=-]*) printf ' "%s"' "$argument" >&2 ;;
        *) printf ' %s' "$argument" >&2 ;;
        esac
    done
    printf '\n' >&2
    "$mote" "$@"
}

echo "An MoE twin of $dense: 4 experts, F16 down projections, their sources times 2^13." >&2
twin=$("$python" "$(dirname "$0")/cached_twin.py" "$dense" --experts 4 --overflow 13 --down-f16)
show doctor "$twin"
show run "$twin" -p "$prompt"
