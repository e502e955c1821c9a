#!/usr/bin/env bash
# Copies what CMake needs of the dependencies into .deps/, where it looks first: for building on a machine of the same kind that has torch
# but no access to packages. Carry the folder there together with the source tree.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .deps/include .deps/lib .deps/share  # minja, which set-up fetches, stays
mkdir -p .deps/include .deps/lib .deps/share/cmake
for package in nlohmann-json3-dev libcli11-dev libxxhash-dev; do
  dpkg -L "$package" | while read -r file; do
    [ -f "$file" ] || continue
    case $file in
      /usr/include/*) target=.deps/include/${file#/usr/include/} ;;
      */cmake/*) target=.deps/share/cmake/${file##*/cmake/} ;;
      *) continue ;;
    esac
    mkdir -p "$(dirname "$target")"
    cp "$file" "$target"
  done
done
# PCRE2 is a library: under the name that it is linked by, and under the one that it is loaded by.
cp /usr/include/pcre2.h .deps/include/
pcre2=$(dpkg -L libpcre2-dev | grep '/libpcre2-8\.so$')
cp -L "$pcre2" .deps/lib/libpcre2-8.so
cp .deps/lib/libpcre2-8.so .deps/lib/libpcre2-8.so.0
du -sh .deps
