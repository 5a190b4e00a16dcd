#!/usr/bin/env bash
# Writes the reference of the C++ interface into FOLDER/html with Doxygen. Fails if Doxygen warns, such as of a public name without a comment.
#
#   scripts/reference.sh [FOLDER]      default: build/reference
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build/reference}
mkdir -p "$folder"
version=$(sed -n 's/^#define PLIMSOLL_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/plimsoll/version.h | paste -sd .)
{ cat docs/Doxyfile; echo "PROJECT_NUMBER = $version"; echo "OUTPUT_DIRECTORY = \"$folder\""; } | doxygen -
echo "reference: $folder/html/index.html"
