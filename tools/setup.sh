#!/bin/sh
# Checks that what mote needs is on this machine, and installs what is missing where it may.
#
# usage: setup.sh [--install] GROUP...
#   build    to build mote                    fetch   to fetch the demo's model
#   test     to build and run the tests       long    for `make test-long`: fuzzing and valgrind
#   tools    to run the scripts in tools/
#
# Without --install nothing is installed: what is missing is listed with the command that installs it, and the status
# is 1. With --install on a system with apt, as root or with sudo, it says what it installs and installs it. Where
# nothing is missing it prints nothing and touches nothing.
set -u
LC_ALL=C
export LC_ALL

MESON_LEAST=0.61.0

have() { command -v "$1" >/dev/null 2>&1; }

# compiles LANGUAGE_FLAGS... < source: whether the C compiler turns the source into a program.
compiles() {
    compiler=$1
    shift
    folder=$(mktemp -d) || return 1
    cat >"$folder/check.c"
    "$compiler" "$@" "$folder/check.c" -o "$folder/check" >/dev/null 2>&1
    result=$?
    rm -rf "$folder"
    return $result
}

has_compiler() {
    for compiler in ${CC:-cc gcc clang}; do
        have "$compiler" || continue
        printf '#include <stdio.h>\nint main(void) { return 0; }\n' | compiles "$compiler" && return 0
    done
    return 1
}

has_meson() {
    have meson || return 1
    version=$(meson --version 2>/dev/null) || return 1
    [ "$(printf '%s\n%s\n' "$MESON_LEAST" "$version" | sort -V | head -n 1)" = "$MESON_LEAST" ]
}

has_ninja() { have ninja || have ninja-build || have samu; }
has_pkg_config() { have pkg-config || have pkgconf; }
has_library() { has_pkg_config && { pkg-config --exists "$1" 2>/dev/null || pkgconf --exists "$1" 2>/dev/null; }; }
has_python() { have python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; }
has_pip() { have python3 && python3 -m pip --version >/dev/null 2>&1; }
has_fuzzer() {
    for compiler in clang-14 clang; do
        have "$compiler" || continue
        printf '#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *d, size_t n) { (void)d; return n > 9; }\n' |
            compiles "$compiler" -fsanitize=fuzzer,address,undefined && return 0
    done
    return 1
}

# group | the check, a command | Debian's packages | what it is, for every other system
needs() {
    cat <<'EOF'
build|has_compiler|gcc libc6-dev|a C compiler for C17 (gcc or clang) with the C library's headers
build|has_meson|meson|Meson, 0.61 or later
build|has_ninja|ninja-build|Ninja
build|has_pkg_config|pkg-config|pkg-config
build|has_library libpcre2-8|libpcre2-dev|PCRE2 (libpcre2-8), with its headers
build|has_library libutf8proc|libutf8proc-dev|utf8proc, with its headers
build|has_library jansson|libjansson-dev|jansson, with its headers
build|has_library hwloc|libhwloc-dev|hwloc, with its headers
fetch|has_python|python3|Python, 3.8 or later
fetch|has_pip|python3-pip|pip for Python 3
tools|has_python|python3|Python, 3.8 or later
test|has_python|python3|Python, 3.8 or later
test|has_library cmocka|libcmocka-dev|cmocka, with its headers
test|have mpirun|libopenmpi-dev openmpi-bin|Open MPI or MPICH, with its headers (for the tests of ranks)
long|has_fuzzer|clang-14 libclang-rt-14-dev|clang with libFuzzer and the sanitizers
long|have valgrind|valgrind|valgrind
long|have mpirun.mpich|libmpich-dev mpich|MPICH, with its headers
EOF
}

install=no
groups=
for argument in "$@"; do
    case $argument in
    --install) install=yes ;;
    build | fetch | test | long | tools) groups="$groups $argument" ;;
    *)
        echo "setup.sh: '$argument' is neither --install nor one of build, fetch, test, long, tools" >&2
        exit 2
        ;;
    esac
done

packages=
names=
look() {
    packages=
    names=
    while IFS='|' read -r group check package name; do
        case " $groups " in *" $group "*) ;; *) continue ;; esac
        $check </dev/null && continue
        case " $packages " in *" $package "*) continue ;; esac
        packages="$packages $package"
        names="$names
  $name"
    done <<EOF
$(needs)
EOF
    packages=${packages# }
}

look
[ -n "$packages" ] || exit 0

if ! have apt-get; then
    printf 'mote needs these, which this system lacks:%s\nInstall them with its package manager, then try again.\n' \
        "$names" >&2
    exit 1
fi

# What a person types for it; $1: "sudo " or nothing.
command_of() { echo "${1}apt-get update && ${1}apt-get install --no-install-recommends $packages"; }
become=
if [ "$(id -u)" != 0 ]; then
    become=sudo
    # Without a terminal nobody can type a password.
    [ -t 0 ] || become='sudo -n'
fi
give_up() {
    printf '%s\nInstall them as root, then try again:\n\n    %s\n\n' "$1" "$(command_of "")" >&2
    exit 1
}
[ "$install" = yes ] || give_up "mote needs these packages, which are missing."
if [ -n "$become" ] && { ! have sudo || { [ "$become" = 'sudo -n' ] && ! sudo -n true 2>/dev/null; }; }; then
    give_up "mote needs these packages, which are missing, and there is neither root nor sudo here."
fi

printf 'mote needs these packages, which are missing. Installing them now:\n\n    %s\n\n' \
    "$(command_of "${become:+sudo }")"
# The environment is set by env, since sudo does not pass it on.
apt() { $become env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" </dev/null; }
apt update || echo "(the lists of packages could not be brought up to date; trying with what is there)"
# shellcheck disable=SC2086 # a list of words
apt install -y --no-install-recommends $packages || give_up "The packages could not be installed."
look
if [ -n "$packages" ]; then
    printf 'These are still missing or too old after the installation:%s\n' "$names" >&2
    exit 1
fi
