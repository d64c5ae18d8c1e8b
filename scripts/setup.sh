#!/usr/bin/env bash
# Make or refresh .venv from requirements/dev.lock. Does nothing when neither the lock nor the interpreter has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
LOCK=${LOCK:-requirements/dev.lock}

fail() {
    echo "setup: $*" >&2
    exit 2
}

usable() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11, 3.12 or 3.13."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11, 3.12 or 3.13 is needed; python3 is $(python3 --version 2>/dev/null || echo missing)." \
        "Install one, or name it: make setup PYTHON=/path/to/python3.12"
}

# Debian splits ensurepip, without which venv cannot work, into a package of its own.
ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: $1 lacks ensurepip; installing $package"
        if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } >build/apt.log 2>&1; then
            tail -n 5 build/apt.log >&2
            fail "could not install $package (the log is build/apt.log)."
        fi
    else
        fail "$1 cannot make virtual environments: ensurepip is missing." \
            "On Debian or Ubuntu: sudo apt-get install $package"
    fi
}

mkdir -p build
# Two targets started at once must not install into one environment together.
if command -v flock >/dev/null 2>&1; then
    exec 9>build/setup.lock
    flock 9
fi
python=$(find_python)
wanted=$("$python" - "$LOCK" pyproject.toml <<'PY'
import hashlib, sys
digest = hashlib.sha256(sys.version.encode())
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        digest.update(file.read())
print(digest.hexdigest())
PY
)
stamp=$VENV/.chairlift-setup
if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

ensure_venv_module "$python"
echo "setup: $VENV with $("$python" --version), packages from $LOCK"
# An interpreter that no longer starts, or another minor version, leaves nothing worth keeping.
if [ "$("$VENV/bin/python" -c 'import sys; print(sys.version)' 2>/dev/null)" != \
    "$("$python" -c 'import sys; print(sys.version)')" ]; then
    "$python" -m venv --clear "$VENV"
fi
rm -f "$stamp"
pip() {
    "$VENV/bin/python" -m pip --disable-pip-version-check "$@"
}
pip install -qq --require-hashes --requirement "$LOCK" ||
    fail "pip could not install $LOCK; its reason is above. Check the network and pip's index settings and run it again:" \
        "what was fetched is kept in pip's cache."
# The build backend comes from the lock too, so nothing unverified is fetched.
pip install -qq --no-deps --no-build-isolation --editable .
echo "$wanted" >"$stamp"
