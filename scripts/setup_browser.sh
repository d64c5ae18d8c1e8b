#!/usr/bin/env bash
# Chromium, in which the tests look at reports. Where it is missing it is installed if that can be done without asking
# (root, and a Debian with apt); else those tests are skipped. With CHAIRLIFT_REQUIRE_BROWSER=1 it must be there.
set -euo pipefail
cd "$(dirname "$0")/.."

works() {
    for name in chromium chromium-browser google-chrome; do
        "$name" --version >/dev/null 2>&1 && return
    done
    return 1
}

works && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing chromium, in which the tests look at reports"
    mkdir -p build
    patience=(-o Acquire::Retries=3 -o Acquire::http::Timeout=30)
    if { apt-get update -qq "${patience[@]}" &&
        apt-get install -y -qq --no-install-recommends "${patience[@]}" chromium; } >build/browser.log 2>&1 && works; then
        exit 0
    fi
    tail -n 3 build/browser.log >&2
fi
if [ "${CHAIRLIFT_REQUIRE_BROWSER:-}" = 1 ]; then
    echo "setup: there is no chromium, and CHAIRLIFT_REQUIRE_BROWSER=1 asks for one: apt-get install chromium" >&2
    exit 2
fi
echo "setup: there is no chromium: the tests that look at reports in it are skipped (apt-get install chromium)"
