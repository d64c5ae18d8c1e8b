"""How long a person waits: for `chairlift --help`, and for a server that answers.

    python -m benchmarks.startup [--json FILE]

The first is a whole process, 20 times. The second is the time from starting `chairlift serve` on the demo model until
/ready says 200, 5 times after one that does not count (it finds the model's file and the packages in the page cache: a
warm start). Aims: under 0.3 s and under 5 s, medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._machine import describe
from benchmarks._statistics import MedianInterval, median_interval
from benchmarks._turns import alone
from chairlift import demo_model

CHAIRLIFT = str(Path(sys.executable).with_name("chairlift"))
LONGEST_WAIT = 120.0
"""Seconds after which a server that is not ready counts as failed."""


def help_seconds() -> float:
    """One `chairlift --help`, start to end."""
    begun = time.perf_counter()
    subprocess.run([CHAIRLIFT, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def serve_seconds(model: Path) -> float:
    """From the start of `chairlift serve` until it is ready.

    Raises:
        RuntimeError: it ended, or was not ready in time; the message has the end of its log.
    """
    port = _free_port()
    with tempfile.TemporaryFile("w+") as log:
        begun = time.perf_counter()
        server = subprocess.Popen([CHAIRLIFT, "serve", str(model), "--port", str(port)], stdout=log, stderr=log)
        try:
            while not _ready(port):
                if server.poll() is not None or time.perf_counter() - begun > LONGEST_WAIT:
                    log.seek(0)
                    raise RuntimeError(f"the server did not get ready:\n{log.read()[-2000:]}")
                time.sleep(0.01)
            return time.perf_counter() - begun
        finally:
            server.terminate()
            server.wait()


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _line(what: str, seconds: MedianInterval, aim: float) -> str:
    return f"| {what} | {seconds.median:.2f} [{seconds.low:.2f}, {seconds.high:.2f}] | {seconds.count} | < {aim} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring")
    parser.add_argument("--json", type=Path, help="write the seconds there")
    arguments = parser.parse_args()
    model = demo_model.locate()
    with alone(arguments.lock):
        helps = [help_seconds() for _ in range(21)][1:]
        starts = [serve_seconds(model) for _ in range(6)][1:]
    print(f"{time.strftime('%Y-%m-%d')}, {describe()}\n")
    print("| | median, s | runs | aim |\n|---|---|---|---|")
    print(_line("`chairlift --help`", median_interval(helps), 0.3))
    print(_line("`chairlift serve`, warm, until /ready", median_interval(starts), 5))
    if arguments.json:
        arguments.json.write_text(json.dumps({"help": helps, "serve": starts}, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
