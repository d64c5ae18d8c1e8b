#!/usr/bin/env bash
# Resolve pyproject.toml into requirements/*.lock: every package at one version, with the hashes of its files.
# Extra arguments go to the resolver, e.g. `scripts/lock.sh --upgrade` or `--upgrade-package ruff`.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
venv=build/lock-venv
if [ ! -x "$venv/bin/uv" ] || [ "$("$venv/bin/uv" --version | cut -d' ' -f2)" != "$UV_VERSION" ]; then
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet "uv==$UV_VERSION"
fi

# No index and no path is written down: the hashes alone say which files are meant, wherever they are fetched from.
resolve() {
    "$venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" pyproject.toml
}
resolve --extra all --group dev --output-file requirements/all.lock "$@"
# The same versions, without what only the extras need.
resolve --group dev --constraint requirements/all.lock --output-file requirements/dev.lock "$@"
resolve --constraint requirements/all.lock --output-file requirements/base.lock "$@"
grep -c '==' requirements/*.lock
