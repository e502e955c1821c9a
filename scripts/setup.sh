#!/usr/bin/env bash
# Sets up what the build and the tests need: Debian packages and a private .venv with exact pins. Idempotent; `make` calls it when
# this file or a file of requirements changed.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build ccache python3-venv unzip
  nlohmann-json3-dev libcli11-dev libgtest-dev librapidcheck-dev libicu-dev libgloo-dev libpcre2-dev libxxhash-dev
  llvm-19-dev clang-19 clang-format-19 clang-tidy-19 libclang-19-dev libclang-rt-19-dev
  qemu-user
)
# What links programs of the other architecture, which qemu-user runs (tests/arch).
case $(uname -m) in
  x86_64) packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
  aarch64) packages+=(gcc-x86-64-linux-gnu libc6-dev-amd64-cross) ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
# A cmake or a Python that did not come from a package is as good.
command -v cmake >/dev/null && missing=("${missing[@]/cmake/}")
python3 -c 'import ensurepip, venv' 2>/dev/null && missing=("${missing[@]/python3-venv/}")
read -ra missing <<<"${missing[*]}"

if ((${#missing[@]})); then
  if ((EUID == 0)); then
    as_root=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo)
  else
    echo "setup: these packages are missing and neither root nor sudo is at hand; install them, then run make again:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

python3 - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit("setup: Python 3.11 or newer is needed, this is " + sys.version.split()[0])
PY

[ -x .venv/bin/python ] || python3 -m venv .venv
# Most modules are never imported: those that are, are compiled then.
install=(.venv/bin/pip install -q --no-compile)
# torch first and alone: the other packages accept what is there, and none of them pulls in another build of it.
"${install[@]}" "$(grep '^torch==' requirements.txt)"
scripts/fetch_data.sh &
"${install[@]}" -r requirements.txt
# PEFT's ADAMSS asks for scikit-learn. It lies apart, where only the tests of that method look: transformers generates otherwise
# wherever it finds it.
"${install[@]}" --no-deps --upgrade --target .venv/scikit-learn -r requirements-scikit-learn.txt
wait
touch .venv/.setup-done
