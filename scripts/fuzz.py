"""Run the property tests again and again with fresh random seeds, as `make fuzz` does, until the time is up.

Each round is one pytest run under the hypothesis profile `fuzz`; failing examples are kept in `.hypothesis/` and tried
first next time. Exits 0 when every round passed, 1 at the first failing round, 2 when there was nothing to run.
"""

import argparse
import os
import random
import subprocess
import sys
import time

NO_TESTS_COLLECTED = 5
"""pytest's exit code for an empty selection."""


def parse_arguments() -> argparse.Namespace:
    """The command line; what follows `--` goes to pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="start no new round after this time (default 600)")
    parser.add_argument("pytest", nargs="*", help="further pytest arguments, e.g. a test file")
    return parser.parse_args()


def main() -> int:
    """Run rounds; see the module's docstring for the exit codes."""
    arguments = parse_arguments()
    environment = os.environ | {"HYPOTHESIS_PROFILE": "fuzz"}
    end, rounds = time.monotonic() + arguments.seconds, 0
    while time.monotonic() < end:
        seed = random.randrange(1 << 32)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "hypothesis and not model"]
        done = subprocess.run([*command, f"--hypothesis-seed={seed}", *arguments.pytest], env=environment, check=False)
        rounds += 1
        if done.returncode == NO_TESTS_COLLECTED:
            print("fuzz: no property test matches", file=sys.stderr)
            return 2
        if done.returncode != 0:
            print(f"fuzz: round {rounds} failed; again with: make fuzz ARGS=--hypothesis-seed={seed}", file=sys.stderr)
            return 1
    print(f"fuzz: {rounds} rounds passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
