#!/usr/bin/env bash
# Copies the header-only dependencies into .deps/, where CMake looks first: for building on a machine that has torch but no access to
# packages. Carry the folder there together with the source tree.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .deps/include .deps/share  # minja, which set-up fetches, stays
mkdir -p .deps/include .deps/share/cmake
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
du -sh .deps
