"""How long a person waits: for `chairlift --help`, and for `chairlift serve` to answer.

    python -m benchmarks.startup [--model FILE] [--help-runs 20] [--serve-runs 5]

Wall clock from the start of the process. `serve` is warm: one start before the first measured one fills the caches of
files and of compiled models. Ready is the first 200 of /ready.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from chairlift import demo_model

CHAIRLIFT = str(Path(sys.executable).with_name("chairlift"))
PATIENCE = 120.0


def time_help(arguments: Sequence[str]) -> float:
    """Seconds until the help is printed."""
    begun = time.perf_counter()
    subprocess.run([CHAIRLIFT, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def time_serve(model: Path, arguments: Sequence[str]) -> float:
    """Seconds until /ready is 200.

    Raises:
        RuntimeError: the server ended, or was not ready in time.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [CHAIRLIFT, "serve", str(model), "--port", str(port), *arguments], stderr=subprocess.DEVNULL
    )
    try:
        while not _ready(port):
            if process.poll() is not None or time.perf_counter() - begun > PATIENCE:
                raise RuntimeError(f"serve ended with {process.returncode} or was not ready in {PATIENCE:g} s.")
            time.sleep(0.01)
        return time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait()


def _ready(port: int) -> bool:
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).status == 200)
    return False


def _line(what: str, times: Sequence[float]) -> str:
    return f"{what:<28} median {statistics.median(times):.3f} s, {min(times):.3f} to {max(times):.3f} of {len(times)}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--help-runs", type=int, default=20)
    parser.add_argument("--serve-runs", type=int, default=5)
    options, extra = parser.parse_known_args()
    for arguments in (["--help"], ["serve", "--help"]):
        print(_line(f"chairlift {' '.join(arguments)}", [time_help(arguments) for _ in range(options.help_runs)]))
    model = options.model or demo_model.locate()
    time_serve(model, extra)
    print(_line("chairlift serve, warm", [time_serve(model, extra) for _ in range(options.serve_runs)]))


if __name__ == "__main__":
    main()
