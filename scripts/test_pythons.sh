#!/usr/bin/env bash
# The fast suite on the other Pythons that Hocket promises, where they are installed: scripts/test_pythons.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(3.12 3.13)
for version in "${versions[@]}"; do
  # Run, not looked for: a version manager has a launcher for versions that are not installed too.
  if ! "python$version" -c '' 2>/dev/null; then
    echo "python$version is not installed: not tried"
    continue
  fi
  make PYTHON="python$version" VENV=".venv-$version" test
done
