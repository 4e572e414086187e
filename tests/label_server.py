"""``pdcc label`` as a process of its own, and requests to it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from urllib.parse import urlsplit


class Server:
    """A running server. ``address`` is what it printed."""

    def __init__(self, process: subprocess.Popen, lines: list[str]):
        self.process, self.lines = process, lines
        self.address = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        self.port = urlsplit(self.address).port
        self.token = re.search(r"token=(\S+)", self.address)

    def ask(self, method: str, path: str, body=None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        """Status, headers and content of one answer. The path is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            given = ({} if data is None else {"Content-Type": "application/json"}) | (headers or {})
            connection.request(method, path, body=data, headers={k: v for k, v in given.items() if v is not None})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=20)

    def interrupt(self) -> str:
        """What it says after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=30)
        return said


@contextmanager
def serving(*arguments, cwd, port: int = 0):
    """A server of ``pdcc label`` with these arguments, at any port that is free."""
    words = [sys.executable, "-m", "pdcc", "label", *map(str, arguments), "--port", str(port)]
    process = subprocess.Popen(
        words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        lines = []
        while not any("Ctrl-C" in line for line in lines):
            lines.append(line := process.stdout.readline())
            assert line, "".join(lines)
        yield Server(process, lines)
    finally:
        process.kill()
        process.wait(timeout=20)
        process.stdout.close()


class Client:
    """One annotator at one page, over one connection that is made anew when it broke."""

    def __init__(self, server: Server, annotator: str):
        self.who = {"client": made_up(), "annotator": annotator}
        self._port = server.port
        self._connection = None

    def post(self, path: str, **body) -> tuple[int, dict]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            self._connection.request(
                "POST", f"/api/{path}", body=json.dumps(self.who | body), headers={"Content-Type": "application/json"}
            )
            response = self._connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def made_up() -> str:
    return uuid.uuid4().hex


def wait_until(holds, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
