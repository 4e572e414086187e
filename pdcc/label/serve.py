"""Serve a desk until Ctrl-C: the socket, who may reach it, and the server's loop."""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from pdcc.errors import PairDataError
from pdcc.label.desk import Desk
from pdcc.label.guard import LOOPBACK, Guard
from pdcc.label.server import make_app

LOCAL = "127.0.0.1"


def serve(
    desk: Desk, announce: Callable[[str], None], *, port: int, host: str | None = None, annotator: str | None = None
) -> None:
    """Serve at 127.0.0.1 or, with a token, at ``host``; ``announce`` gets the address. Returns after Ctrl-C."""
    with _listening(host or LOCAL, port) as listener:
        number = listener.getsockname()[1]
        token = None if host is None else secrets.token_urlsafe(24)
        here = socket.gethostname().lower()
        names = LOOPBACK if host is None else LOOPBACK | {here, _in_address(host)}
        app = Guard(
            make_app(desk, annotator=annotator),
            names=names,
            addresses=host is not None,
            token=token,
            cookie=f"pdcc-label-{number}",
        )
        config = uvicorn.Config(
            app, ws="none", http="h11", lifespan="off", log_config=None, log_level="error", access_log=False,
            server_header=False, timeout_graceful_shutdown=3,
        )  # fmt: skip
        shown = here if host is not None and _is_everywhere(host) else _in_address(host or LOCAL)
        announce(f"http://{shown}:{number}/" + ("" if token is None else f"?token={token}"))
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise PairDataError(
            "--port and --host", "a free port at an address of this machine", f"{host} port {port}: {error}", "Choose others; port 0 takes any that is free."
        ) from error  # fmt: skip


def _in_address(host: str) -> str:
    """A host as it stands in an address: numbers of version 6 in brackets."""
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
