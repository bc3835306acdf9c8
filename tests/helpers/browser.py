"""A headless Chromium, driven through its own chromedriver by the WebDriver protocol.

Only what the tests of the page need, over HTTP with the standard library.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--force-color-profile=srgb --hide-scrollbars"
).split()
KEYS = {"left": "\ue012", "right": "\ue014", "tab": "\ue004", "end": "\ue010"}


def missing() -> str | None:
    """Why there is no browser here, or None."""
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium here: apt-get install chromium chromium-driver"
    if not shutil.which("chromedriver"):
        return "no chromedriver here: apt-get install chromium-driver"
    return None


class Browser:
    """One window."""

    def __init__(self, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.base = f"http://127.0.0.1:{port}"
        binary = next(filter(None, map(shutil.which, BROWSERS)))
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": binary}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._wait()
        made = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{made['sessionId']}"

    def close(self) -> None:
        try:
            self._send("DELETE", "", None)
        finally:
            self.driver.terminate()
            self.driver.wait()

    def open(self, page: Path) -> None:
        self._post("/url", {"url": page.resolve().as_uri()})

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """A window of this size, as on a device of that width."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.devtools("Emulation.setDeviceMetricsOverride", mobile=False, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme, still])

    def devtools(self, command: str, **params: Any) -> Any:
        sent = {"cmd": command, "params": params}
        return self._post("/goog/cdp/execute", sent)

    def run(self, script: str) -> Any:
        """The value of a script."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def press(self, key: str) -> None:
        pressed = [{"type": t, "value": KEYS[key]} for t in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": pressed}]
        self._post("/actions", {"actions": actions})

    def text(self, selector: str) -> str:
        return self.run(f"return document.querySelector({selector!r}).innerText.trim()")

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({selector!r}).click()")

    def screenshot(self, path: Path) -> None:
        image = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))

    def console(self) -> list[str]:
        """What the page had to complain of."""
        return [line["message"] for line in self._post("/se/log", {"type": "browser"})]

    def _wait(self) -> None:
        for _ in range(200):
            try:
                if self._send("GET", "/status", None)["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError("chromedriver did not start")

    def _post(self, path: str, body: Any) -> Any:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None
