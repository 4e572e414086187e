"""From a report's content to one HTML page that needs nothing else: no network, no other file, no script but its own."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pdcc.errors import printable
from pdcc.report import tables
from pdcc.report.collect import gather
from pdcc.report.content import Part, ReportContent
from pdcc.report.figures import draw_all
from pdcc.report.looks import thumbnails
from pdcc.report.sections import MOST_CARDS, believed, chosen_rows, of_clusters, of_verdict
from pdcc.report.words import shown
from pdcc.storage.files import as_path, check_output, write_atomic
from pdcc.storage.model import read_description
from pdcc.storage.run import features_of

TEMPLATES = Path(__file__).parent / "templates"


def render(content: ReportContent) -> str:
    """The page. Texts of users are escaped by the templates; pictures by ``as_svg``."""
    style, script = _text("page.css"), _text("page.js")
    rows = chosen_rows(content)
    images = thumbnails(content.looks.images, tables.pictured(content, rows))
    wanted = content.looks.images.keys() & set(tables.pictured(content, rows))
    page: dict[str, Any] = {
        "content": content,
        "title": f"Report on {shown(content.facts.run)}",
        "policy": _policy(style, script),
        "style": Markup(style),
        "script": Markup(script),
        "figures": draw_all(content),
        "verdict": of_verdict(content),
        "cards": of_clusters(content, images),
        "believed": believed(content.diagnosis),
        "cards_left": max(content.n_clusters - MOST_CARDS, 0),
        "images_left": len(wanted) - len(images),
        "annotators": tables.of_annotators(content),
        "answers": tables.of_answers(content, images),
        "suggested": tables.of_suggested(content, images),
        "compared": tables.of_compared(content),
        "facts": tables.facts_of(content),
        "absent": {part.name.lower(): printable(content.absent.get(part, "It is not there.")) for part in Part},
    }
    return _environment().get_template("page.html").render(page)


def write_report(
    run: str | Path,
    output: str | Path,
    *,
    features: str | Path | None = None,
    items: str | Path | None = None,
    images: str | Path | None = None,
    quick: bool = False,
    random_state: int = 0,
    progress: bool = False,
) -> Path:
    """Write the report of a finished run to one HTML file, and return its path; arguments are those of ``gather``."""
    own = features_of(as_path(run), read_description(as_path(run)))[0] if features is None else features
    target = check_output(as_path(output), [as_path(p) for p in (own, items) if p is not None])
    content = gather(
        run, features=features, items=items, images=images, quick=quick, random_state=random_state, progress=progress
    )
    write_atomic(target, render(content).encode())
    return target


def _policy(style: str, script: str) -> str:
    """A content security policy under which nothing but this page's own style, script and images is used."""
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
