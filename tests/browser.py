"""A headless Chromium, driven by chromedriver's own HTTP protocol (W3C WebDriver); and where it, and axe-core, are found."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
ROOT = Path(__file__).parents[1]
# With this set, what is not found is a failure, not a reason to skip.
REQUIRED = os.environ.get("PDCC_BROWSER") == "required"
SHIFT_TAB, TAB, ENTER = "\ue008\ue004", "\ue004", "\ue007"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def axe() -> Path | None:
    """axe.min.js: where AXE_CORE says, or where ``npm install --prefix build/axe axe-core`` puts it."""
    given = os.environ.get("AXE_CORE")
    path = Path(given) if given else ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.is_file() else None


class Browser:
    """One page in a browser with a new profile in ``home``; files it saves go there too."""

    def __init__(self, home: Path):
        # Chromium leaves directories behind where temporary files go; sockets in them allow no long path.
        self._scratch = tempfile.TemporaryDirectory(prefix="b", ignore_cleanup_errors=True)
        self._log = (home / "chromedriver.log").open("w+")
        # The driver is asked at loopback, whatever proxy the environment names.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        environment |= {"HOME": str(home), "TMPDIR": self._scratch.name}
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )
        self._session = ""
        try:
            port = self._wait_for(
                lambda: re.search(r"started successfully on port (\d+)", Path(self._log.name).read_text())
            )[1]
            self._address = f"http://127.0.0.1:{port}"
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={home / 'profile'}"]}
            options["prefs"] = {"download.default_directory": str(home), "download.prompt_for_download": False}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _wait_for(look, seconds: float = 30.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := look():
                return found
            time.sleep(0.02)
        raise AssertionError("waited in vain")

    def _ask(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with self._open(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)
            self._log.close()
            self._scratch.cleanup()

    def go(self, address: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments):
        """What a script in the page returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script: str):
        """What an asynchronous script hands to its last argument."""
        return self._ask("POST", f"{self._session}/execute/async", {"script": script, "args": []})

    def until(self, script: str, *arguments):
        """What a script in the page returns, once that is true in some way."""
        return self._wait_for(lambda: self.run(script, *arguments))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other; several letters in one string are held together."""
        actions = []
        for held in keys:
            actions += [{"type": "keyDown", "value": k} for k in held]
            actions += [{"type": "keyUp", "value": k} for k in reversed(held)]
        sources = [{"type": "key", "id": "keyboard", "actions": actions}]
        self._ask("POST", f"{self._session}/actions", {"actions": sources})

    def click(self, selector: str) -> None:
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"{self._session}/element/{found[ELEMENT]}/click", {})

    def devtools(self, command: str, **parameters):
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", body)

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def colours(self, scheme: str) -> None:
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def look(self, *, dark: bool = False, width: int = 1200) -> None:
        """Look at the page in these colours and at this width."""
        self.colours("dark" if dark else "light")
        self.size(width, 900)

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.devtools("Page.printToPDF", printBackground=False)["data"]))

    def console(self) -> list[str]:
        """What the page wrote to its console since the last look, refusals by its policy among it."""
        return [entry["message"] for entry in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses of all requests since the last look."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return sent
