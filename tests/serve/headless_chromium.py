"""Chromium without a window, driven by its DevTools protocol over a pair of pipes: no package needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no chromium here: apt-get install chromium"
SHIFT = 8  # DevTools' modifier bit
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowUp": (38, ""), "ArrowRight": (39, "")}
FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
PATIENCE_SECONDS = 30
# Resolves when an expression is true; a test waits in the page, not here
UNTIL = """new Promise((done, failed) => {
  const end = Date.now() + %d;
  (function look() {
    const value = (%s);
    if (value) done(value); else if (Date.now() > end) failed(new Error("never true")); else setTimeout(look, 10);
  })();
})"""


def find_chromium() -> str | None:
    """Return the path of the browser, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser process. It reads commands from file descriptor 3 and answers on 4, as JSON terminated by NUL."""

    def __init__(self, program: str, profile: str) -> None:
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        text = f'exec "$@" 3</proc/self/fd/{commands} 4>/proc/self/fd/{answers}'
        self._process = subprocess.Popen(
            ["sh", "-c", text, "sh", program, *FLAGS.split(), f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(commands, answers),
        )
        os.close(commands)
        os.close(answers)
        self._last = 0
        self._unread = b""
        self.tabs: dict[str, Tab] = {}

    def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Return the result of a protocol command. Raises RuntimeError with the browser's message."""
        self._last += 1
        command = {"id": self._last, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return dict(message["result"])
            if tab := self.tabs.get(message.get("sessionId", "")):
                tab.handle_event(message)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._from], [], [], 2 * PATIENCE_SECONDS)[0]:
                raise RuntimeError("the browser does not answer")
            more = os.read(self._from, 1 << 20)
            if not more:
                raise RuntimeError(f"the browser has exited with status {self._process.poll()}")
            self._unread += more
        first, self._unread = self._unread.split(b"\0", 1)
        return dict(json.loads(first))

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        self._process.wait(PATIENCE_SECONDS)
        os.close(self._to)
        os.close(self._from)


@contextlib.contextmanager
def open_browser(program: str) -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(eq=False)
class Tab:
    """A page with separate storage. `complaints`: exceptions and console errors; `fetched`: every requested
    URL.
    """

    browser: Browser
    session: str
    context: str
    complaints: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def handle_event(self, message: dict[str, Any]) -> None:
        params = message["params"]
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.fetched.append(params["request"]["url"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, session=self.session, **params)

    def set_viewport(self, *, width: int = 1280, height: int = 800, scheme: str = "light") -> None:
        """Set the window size in CSS pixels and the system's colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open_url(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the page and await promises. Raises AssertionError with the exception that it
        threw.
        """
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}\n{answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait_until(self, expression: str) -> Any:
        """Wait until an expression is true; return its value."""
        return self.ask(UNTIL % (1000 * PATIENCE_SECONDS, expression))

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).innerText"))

    def count(self, selector: str) -> int:
        return int(self.ask(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def element_centre(self, selector: str) -> dict[str, float]:
        """Where an element is, scrolled to."""
        self.wait_until(f"document.querySelector({json.dumps(selector)})")
        return dict(
            self.ask(
                f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const r = e.getClientRects()[0];"
                f" return {{x: r.x + r.width / 2, y: r.y + r.height / 2}} }})"
                f"(document.querySelector({json.dumps(selector)}))"
            )
        )

    def hover(self, selector: str) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.element_centre(selector))

    def click(self, selector: str) -> None:
        where = self.element_centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, modifiers: int = 0) -> None:
        code, text = KEYS[key]
        of_the_key = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **of_the_key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **of_the_key)

    def take_screenshot(self) -> bytes:
        """What it looks like, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextlib.contextmanager
def open_tab(of: Browser) -> Iterator[Tab]:
    context = of.call("Target.createBrowserContext")["browserContextId"]
    target = of.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    session = of.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    tab = of.tabs[session] = Tab(of, session, context)
    try:
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.set_viewport()
        yield tab
    finally:
        del of.tabs[session]
        of.call("Target.disposeBrowserContext", browserContextId=context)
