"""What every picture has in common: an Axes to draw on, colours that stay apart where they are seen poorly, quiet frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # matplotlib takes half a second to import: only when something is drawn
    from matplotlib.axes import Axes

# Paul Tol's "bright" scheme: distinct under the common kinds of colour blindness.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
# Words and frames; and the lines behind them.
INK, PALE = "#333333", "#dddddd"


def axes_of(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """``ax``, or the Axes of a new figure of that size (inches), made without pyplot: nothing global is opened."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def plain(ax: Axes) -> Axes:
    """No frame above and at the right, a pale grid behind."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def colour(k: int) -> str:
    """The colour of cluster or method ``k``; with ``marker``, 35 are told apart."""
    return COLOURS[k % len(COLOURS)]


def marker(k: int) -> str:
    """The marker of cluster ``k``."""
    return "os^vD"[k // len(COLOURS) % 5]


def on_colour(background: Sequence[float]) -> str:
    """Words on a colour (red, green, blue, opacity, each from 0 to 1): black or white, whichever stands out more (WCAG's contrast)."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in background[:3]]
    luminance = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return "#ffffff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#010101"


def titled(ax: Axes, title: str) -> None:
    """A title of the size that all pictures have; dollars in it are dollars."""
    ax.set_title(title, fontsize=11, parse_math=False)
