"""A matplotlib figure as inline SVG: words stay words, colours follow the page, nothing needs a style attribute."""

import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from pdcc.plots.canvas import INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Style properties that SVG also knows as attributes: a page that forbids inline styles shows these.
ATTRIBUTES = {
    "fill", "fill-opacity", "fill-rule", "font-size", "font-style", "font-weight", "opacity", "stroke", "stroke-dasharray", "stroke-dashoffset",
    "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "stroke-width", "text-anchor",
}  # fmt: skip
# The page has a font and a way to draw images of its own.
DROPPED = {"font-family", "font", "image-rendering", "font-variant", "font-stretch"}
INKS = {INK, "#000000"}
# What is drawn hollow shows the page; white words stand on colours of their own.
HOLLOW = "#ffffff"
NUMBER = re.compile(r"-?\d+\.\d{3,}")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
HREF = "{http://www.w3.org/1999/xlink}href"


def as_svg(figure: "Figure", name: str, title: str, description: str) -> Markup:
    """The figure as an <svg> element that a screen reader announces by ``title`` and ``description``; ``name`` is its id."""
    import matplotlib
    from matplotlib.layout_engine import TightLayoutEngine

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        # A name in letters that matplotlib's font lacks is measured roughly, and shown in the reader's own font.
        warnings.filterwarnings("ignore", "Glyph")
        warnings.filterwarnings("ignore", "Tight layout")
        # Once, by hand: an engine that stays with the figure makes it draw everything once more, to no other effect.
        TightLayoutEngine().execute(figure)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    used = set(_references(root))
    for element in root.iter():
        _plain_attributes(element, name, used)
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    # Points, at 96 of the page's pixels to an inch.
    root.attrib.update({"width": f"{width * 4 / 3:.0f}", "height": f"{height * 4 / 3:.0f}"})
    root.attrib.update(
        {
            "id": name, "class": "drawn", "role": "img", "aria-labelledby": f"{name}-title {name}-desc",
            "stroke-linejoin": "round", "stroke-linecap": "butt", "focusable": "false",
        }
    )  # fmt: skip
    root.attrib.pop("version", None)
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        child = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        child.text = words
        root.insert(place, child)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # every text in it was escaped by the serialiser


def _references(root: ElementTree.Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            yield from REFERENCE.findall(value)
            if key == HREF and value.startswith("#"):
                yield value[1:]


def _plain_attributes(element: ElementTree.Element, name: str, used: set[str]) -> None:
    """In place: no namespaces, no styles, no ids but those referred to, short numbers, inks that follow the page."""
    element.tag = tag = _local(element.tag)
    given = dict(element.attrib)
    element.attrib.clear()
    for part in given.pop("style", "").split(";"):
        key, _, value = (p.strip() for p in part.partition(":"))
        if key in ATTRIBUTES:
            given[key] = value
        elif key and key not in DROPPED:
            raise ValueError(f"style: expected a property that SVG knows as an attribute, found {key!r}. Add it here.")
    if tag == "text":
        given.setdefault("fill", "#000000")
        given["transform"] = given.get("transform", "").replace("rotate(-0 ", "rotate(0 ")
        if given["transform"].startswith("rotate(0 "):
            del given["transform"]
    for key, value in given.items():
        if key == "id":
            if value not in used:
                continue
            value = f"{name}-{value}"
        elif key == HREF:
            key, value = "href", f"#{name}-{value[1:]}" if value.startswith("#") else value
        elif key in ("fill", "stroke"):
            if value in INKS:
                value = "currentColor"
            elif value == PALE:
                element.set("class", f"pale-{key}")
            elif value == HOLLOW and tag != "text":
                element.set("class", f"hollow-{key}")
        elif "url(#" in value:
            value = REFERENCE.sub(lambda found: f"url(#{name}-{found[1]})", value)
        elif key != "viewBox":
            value = NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value).replace("\n", "")
        element.set(_local(key), value)
    element.tail = None
    if tag not in ("text", "title", "desc", "tspan"):
        element.text = None


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
