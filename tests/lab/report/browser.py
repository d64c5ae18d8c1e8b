"""Looks at a page in headless Chromium over its own protocol: what it asks for, what it complains of, what is seen.

Protocol: chromedevtools.github.io/devtools-protocol (Target, Page, Runtime, Log, Network, Emulation).
"""

import asyncio
import base64
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

Scheme = Literal["light", "dark"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_SEEN = """(() => ({
  pictures: [...document.querySelectorAll('figure svg')].map(one => {
    const box = one.getBoundingClientRect(); return [box.width, box.height]; }),
  background: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
  cells: [...document.querySelectorAll('path.cells')].map(one => getComputedStyle(one).fill),
  wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  text: document.body.innerText,
}))()"""
_PATIENCE = 300
"""Seconds; a guard against waiting for ever, however slow the machine."""


@dataclass
class Look:
    """What there was to see."""

    requests: list[str] = field(default_factory=list)
    """Addresses that the page asked for, its own not among them."""
    complaints: list[str] = field(default_factory=list)
    """What came on the console, and exceptions."""
    pictures: list[tuple[float, float]] = field(default_factory=list)
    """Width and height of each, in pixels."""
    background: str = ""
    ink: str = ""
    cells: list[str] = field(default_factory=list)
    """What the cells of the slot pictures are filled with."""
    wide: bool = False
    """Whether the page has to be scrolled sideways."""
    text: str = ""
    screenshot: bytes = b""


def chromium() -> str:
    """The program; skips the test where there is none, or fails it with CHAIRLIFT_REQUIRE_BROWSER=1."""
    for name in _NAMES:
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    if os.environ.get("CHAIRLIFT_REQUIRE_BROWSER") == "1":
        pytest.fail("there is no chromium, and CHAIRLIFT_REQUIRE_BROWSER=1 asks for one: run scripts/setup_browser.sh")
    pytest.skip("there is no chromium: run scripts/setup_browser.sh")


def look(pages: Sequence[tuple[Path, Scheme, int]]) -> list[Look]:
    """Open pages one after the other, each as a reader who prefers that scheme, in a window so wide."""
    program = chromium()
    # Its helpers may write on for a moment after it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *_FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            try:
                return asyncio.run(asyncio.wait_for(_look(_address(process), pages), _PATIENCE))
            finally:
                process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
    raise AssertionError("chromium ended before it could be spoken to")


async def _look(address: str, pages: Sequence[tuple[Path, Scheme, int]]) -> list[Look]:
    async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
        return [await _Tab(socket).visit(path, scheme, width) for path, scheme, width in pages]


class _Tab:
    """One page of the browser."""

    numbers = itertools.count(1)

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session: str | None = None
        self._look = Look()
        self._loaded = False

    async def visit(self, path: Path, scheme: Scheme, width: int) -> Look:
        target = await self._ask("Target.createTarget", url="about:blank")
        attached = await self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._ask(f"{domain}.enable")
        await self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
        )
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._ask("Emulation.setEmulatedMedia", features=preferred)
        await self._ask("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._note(await self._message())
        seen = (await self._ask("Runtime.evaluate", expression=_SEEN, returnByValue=True))["result"]["value"]
        for name, value in seen.items():
            setattr(self._look, name, value)
        shot = await self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        self._look.screenshot = base64.b64decode(shot["data"])
        self._look.requests = [one for one in self._look.requests if one != path.as_uri()]
        await self._ask("Target.closeTarget", targetId=target["targetId"])
        return self._look

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        while (answer := await self._message()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json()
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self._look.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self._look.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self._look.complaints.append(str(params["args"]))
            case "Log.entryAdded":
                self._look.complaints.append(str(params["entry"]))
            case "Page.loadEventFired":
                self._loaded = True
