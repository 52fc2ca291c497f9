#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The only entry to clang-format: formats all C++ and CUDA sources, or the files given; --check only reports.
set -euo pipefail

readonly kVersion=14
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_clang_format() {
  local candidate
  for candidate in "clang-format-$kVersion" clang-format; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" --version | grep -q "version $kVersion\."; then
      echo "$candidate"
      return
    fi
  done
  echo "format.sh: clang-format $kVersion not found: apt-get install clang-format-$kVersion" >&2
  exit 1
}

# The sources of the checkout, without what is built.
list_sources() {
  find . -type d \( -name build -o -name .git \) -prune -o -type f \
    \( -name '*.h' -o -name '*.cuh' -o -name '*.cc' -o -name '*.cu' \) -print
}

main() {
  local mode=(-i)
  if [[ ${1:-} == --check ]]; then
    mode=(--dry-run --Werror)
    shift
  fi
  local clang_format
  clang_format=$(find_clang_format)
  if (($# > 0)); then
    "$clang_format" --style=file "${mode[@]}" "$@"
  else
    list_sources | xargs -r "$clang_format" --style=file "${mode[@]}"
  fi
}

main "$@"
