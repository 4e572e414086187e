"""What may pass to the server: the right name, the right token, from our own page, small, and JSON where it writes."""

import asyncio
import hmac
import ipaddress
import json
import re
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pdcc.label.desk import Refused

LARGEST_BODY = 16 * 2**10
# Seconds in which a body of that size must have come.
BODY_SECONDS = 10.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
READS = frozenset({"GET", "HEAD"})
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI app around another.

    names: what a Host header may say; ``addresses``: or any numeric address, which no foreign name can be led to. token: demanded of
    every request where it is not None, in the address of the page once, then in the cookie called ``cookie``.
    """

    def __init__(
        self, app: ASGIApp, *, names: frozenset[str] = LOOPBACK, addresses: bool = False, token: str | None, cookie: str
    ):
        self._app, self._names, self._addresses, self._token, self._cookie = app, names, addresses, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        fresh = False

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    out[name] = value
                if fresh:
                    out["Set-Cookie"] = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            await send(message)

        try:
            self._check_host(headers)
            _check_site(scope, headers)
            fresh = self._check_token(scope, headers)
            if scope["method"] not in READS:
                receive = await _whole(headers, receive)
        except Refused as refused:
            response = PlainTextResponse(str(refused), status_code=refused.status, headers={"Connection": "close"})
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere can have its own name point here: only our own names are answered."""
        given = headers.getlist("host")
        found = HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
        if found is None or not (found[1] in self._names or (self._addresses and _is_address(found[1]))):
            raise Refused(421, "This server has another name. Open the address that pdcc label printed.")

    def _check_token(self, scope: Scope, headers: Headers) -> bool:
        """True where the token came in the address, so that the cookie is to be set."""
        if self._token is None:
            return False
        if _equal(_cookie(headers, self._cookie), self._token):
            return False
        query = parse_qs(scope["query_string"].decode("latin-1")) if scope["path"] == "/" else {}
        if scope["method"] == "GET" and _equal(query.get("token", [""])[-1], self._token):
            return True
        raise Refused(
            401, "The token is missing or wrong. Open the address that pdcc label printed: it holds the token."
        )


def _check_site(scope: Scope, headers: Headers) -> None:
    """Refuse what another site asks for in the name of the person whose browser this is; to open the page is anyone's."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    writes = scope["method"] not in READS
    foreign = site is not None and site not in (("same-origin",) if writes else ("same-origin", "none"))
    if origin is not None and _origin_host(origin) != headers.get("host", "").lower():
        foreign = True
    if foreign and (writes or scope["path"] != "/"):
        raise Refused(403, "Another site may not do this.")


def _origin_host(origin: str) -> str | None:
    """The host and port of an http origin; None for "null" and all else."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None


async def _whole(headers: Headers, receive: Receive) -> Receive:
    """The body of a write, read to its end and handed on; refused where it is not JSON, too large, or too slow."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Expected application/json.")
    too_large = Refused(413, f"Expected at most {LARGEST_BODY} bytes.")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise Refused(400, "Expected a whole number as content-length.")
    if int(length) > LARGEST_BODY:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The request broke off.")
                body += message.get("body", b"")
                if len(body) > LARGEST_BODY:
                    raise too_large
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refused(408, "The request took too long.") from None

    async def again() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _cookie(headers: Headers, name: str) -> str:
    """The value of one cookie; those of other programs at the same address may be malformed, and are passed over."""
    parts = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in parts if key == name), "")


def _equal(given: str, token: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def read_object(body: bytes) -> dict[str, object]:
    """The JSON object that a body holds."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "Expected JSON.") from None
    if not isinstance(found, dict):
        raise Refused(400, "Expected a JSON object.")
    return found
