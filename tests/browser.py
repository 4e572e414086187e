"""Chromium without a window, driven by chromedriver's own protocol; and where both, and axe-core, are found."""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1200,900",
]  # fmt: skip
# With this set, what is not found is a failure, not a reason to skip.
REQUIRED = os.environ.get("PDCC_BROWSER") == "required"


def tool(*names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)


def chromium() -> str | None:
    return tool("chromium", "chromium-browser", "google-chrome")


def driver() -> str | None:
    return tool("chromedriver")


def axe() -> Path | None:
    """axe.min.js: where AXE_CORE says, or where ``npm install --prefix build/axe axe-core`` puts it."""
    given = os.environ.get("AXE_CORE")
    path = Path(given) if given else ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.is_file() else None


class Browser:
    """One session; every method is one command of the WebDriver protocol, or of Chromium's own behind it."""

    def __init__(self, base: str, session: str):
        self._place = f"{base}/session/{session}"

    def ask(self, path: str, body: dict | None = None):
        return send(f"{self._place}{path}", body)

    def devtools(self, command: str, **parameters):
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, page: Path) -> None:
        self.ask("/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments):
        return self.ask("/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script: str):
        """What an asynchronous script hands to its last argument."""
        return self.ask("/execute/async", {"script": script, "args": []})

    def look(self, *, dark: bool = False, width: int = 1200) -> None:
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])  # fmt: skip
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path) -> None:
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.devtools("Page.printToPDF", printBackground=False)["data"]))

    def console(self) -> list[dict]:
        return self.ask("/se/log", {"type": "browser"})


def send(url: str, body: dict | None = None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


@contextmanager
def browsing(home: Path):
    """A browser with a new profile in ``home``; files it saves go there too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [driver(), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(600):
                try:
                    if send(f"{base}/status")["ready"]:
                        break
                except OSError:
                    time.sleep(0.1)
            options = {"binary": chromium(), "args": [*FLAGS, f"--user-data-dir={home / 'profile'}"]}
            options["prefs"] = {"download.default_directory": str(home), "download.prompt_for_download": False}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = send(f"{base}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            try:
                yield Browser(base, session)
            finally:
                request = urllib.request.Request(f"{base}/session/{session}", method="DELETE")
                urllib.request.urlopen(request, timeout=60).close()
        finally:
            process.terminate()
