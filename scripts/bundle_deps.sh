#!/usr/bin/env bash
# Copies what CMake needs of the dependencies into .deps/, where it looks first: for building on a machine that has torch but no access to
# packages. Carry the folder there together with the source tree. For a machine of another architecture name it as Debian does:
# `scripts/bundle_deps.sh amd64`.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(dpkg --print-architecture)
there=${1:-$here}
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
if [ "$there" = "$here" ]; then
  cp -L "$(dpkg -L libpcre2-dev | grep '/libpcre2-8\.so$')" .deps/lib/libpcre2-8.so
else
  # The package of the other architecture is next to this one's: the same address with the other name in it.
  package=$(mktemp -d)
  trap 'rm -rf "$package"' EXIT
  address=$(apt-get download --print-uris libpcre2-8-0 | cut -d"'" -f2)
  curl -fsSL "${address/_$here.deb/_$there.deb}" -o "$package/pcre2.deb"
  dpkg-deb -x "$package/pcre2.deb" "$package"
  cp -L "$(find "$package" -name libpcre2-8.so.0)" .deps/lib/libpcre2-8.so
fi
cp .deps/lib/libpcre2-8.so .deps/lib/libpcre2-8.so.0
du -sh .deps
