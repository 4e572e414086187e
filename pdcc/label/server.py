"""The page and its few requests, as a Starlette app."""

import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pdcc.label.desk import LONGEST_NAME, Desk, Refused, clean_name
from pdcc.label.export import answers_csv
from pdcc.label.guard import read_object
from pdcc.label.store import ANSWERS

logger = logging.getLogger(__name__)
PAGE = {
    "/": ("page.html", "text/html"), "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"), "/page.svg": ("page.svg", "image/svg+xml"),
}  # fmt: skip
ROW = re.compile(r"[0-9]{1,12}")
# What a page makes up: keys of answers, and its own name.
MADE_UP = re.compile(r"[A-Za-z0-9_-]{8,64}")

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(desk: Desk, *, annotator: str | None = None) -> Starlette:
    """The app for one desk; ``annotator``: a name to begin with, so that the page need not ask."""

    async def session(request: Request) -> Response:
        return JSONResponse({"annotator": annotator, "goal": desk.goal, "all": desk.store.count()})

    async def next_pair(request: Request) -> Response:
        body = read_object(await request.body())
        return JSONResponse(
            await run_in_threadpool(desk.next, _made_up(body, "client"), check_name(body.get("annotator")))
        )

    async def answer(request: Request) -> Response:
        body = read_object(await request.body())
        if body.get("answer") not in ANSWERS:
            raise Refused(422, f"answer: expected one of {', '.join(ANSWERS)}.")
        return JSONResponse(await run_in_threadpool(
            desk.answer, ticket=_made_up(body, "ticket"), answer=str(body["answer"]), key=_made_up(body, "key"),
            client=_made_up(body, "client"), annotator=check_name(body.get("annotator")),
        ))  # fmt: skip

    async def undo(request: Request) -> Response:
        body = read_object(await request.body())
        return JSONResponse(await run_in_threadpool(
            desk.undo, key=_made_up(body, "key"), client=_made_up(body, "client"), annotator=check_name(body.get("annotator")),
        ))  # fmt: skip

    async def image(request: Request) -> Response:
        row = request.path_params["row"]
        found = await run_in_threadpool(desk.items.image, int(row)) if ROW.fullmatch(row) else None
        if found is None:
            raise Refused(404, "There is no such image.")
        return Response(found[0], media_type=found[1])

    async def export(request: Request) -> Response:
        content = await run_in_threadpool(answers_csv, desk.store)
        return Response(
            content, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="answers.csv"'}
        )

    routes = [Route(path, _file(name, kind)) for path, (name, kind) in PAGE.items()]
    routes += [Route("/api/session", session), Route("/images/{row}", image), Route("/answers.csv", export)]
    routes += [
        Route(f"/api/{name}", endpoint, methods=["POST"])
        for name, endpoint in {"next": next_pair, "answer": answer, "undo": undo}.items()
    ]
    handlers: dict[Any, Any] = {Refused: _refused, HTTPException: _not_found, sqlite3.Error: _not_kept}
    return Starlette(routes=routes, exception_handlers=handlers)


def _file(name: str, kind: str) -> Endpoint:
    content = files("pdcc.label").joinpath(name).read_bytes()

    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


def check_name(name: object) -> str:
    """An annotator's name; ``Refused`` where it is none."""
    text = clean_name(name)
    if text is None:
        raise Refused(422, f"annotator: expected a name of 1 to {LONGEST_NAME} characters.")
    return text


def _made_up(body: dict[str, object], field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not MADE_UP.fullmatch(value):
        raise Refused(422, f"{field}: expected 8 to 64 letters, digits, - or _.")
    return value


async def _refused(request: Request, error: Refused) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status)


async def _not_found(request: Request, error: HTTPException) -> Response:
    return PlainTextResponse(error.detail, status_code=error.status_code, headers=error.headers)


async def _not_kept(request: Request, error: sqlite3.Error) -> Response:
    logger.error("an answer could not be kept: %s", error)
    return JSONResponse({"error": "The answer could not be kept: the disk may be full."}, status_code=503)
