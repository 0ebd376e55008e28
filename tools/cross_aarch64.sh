#!/bin/sh
# Makes what an AArch64 build needs on an x86-64 Debian: the libraries, in a folder of their own (the system's packages and
# architectures stay as they are), and a Meson cross file that uses them and runs the tests under qemu-user.
#
# usage: cross_aarch64.sh FOLDER, then: meson setup BUILD --cross-file FOLDER/aarch64.cross
#
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user and the network, once.
set -eu
mkdir -p "${1:?usage: cross_aarch64.sh FOLDER}"
folder=$(cd "$1" && pwd)
[ ! -f "$folder/aarch64.cross" ] || exit 0

packages="libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libjansson-dev libjansson4
    libhwloc-dev libhwloc15 libudev1 libcmocka-dev libcmocka0"
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/debs" "$folder/root"
arm64_apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$folder/lists" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "$@"
}
arm64_apt update
# shellcheck disable=SC2086 # a list of words
(cd "$folder/debs" && arm64_apt download $packages)
for package in "$folder"/debs/*.deb; do
    dpkg -x "$package" "$folder/root"
done

libraries=$folder/root/usr/lib/aarch64-linux-gnu
emulator="['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu', '-E', 'LD_LIBRARY_PATH=$libraries:$folder/root/lib/aarch64-linux-gnu']"
cat >"$folder/aarch64.cross" <<EOF
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = $emulator

[properties]
pkg_config_libdir = '$libraries/pkgconfig'
needs_exe_wrapper = true
mote_emulator = $emulator

[built-in options]
c_args = ['-isystem', '$folder/root/usr/include', '-isystem', '$folder/root/usr/include/aarch64-linux-gnu']
c_link_args = ['-L$libraries', '-Wl,-rpath-link,$libraries:$folder/root/lib/aarch64-linux-gnu']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
EOF
