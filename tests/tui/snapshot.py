"""Pictures of the screen, kept as SVG so that people can look at them, compared by what they show.

Compared are the texts with place and colour and the coloured rectangles; not the ids, fonts and style sheets around
them, which differ between releases of the libraries that draw. `LOCALRUN_UPDATE_SNAPSHOTS=1` writes them anew.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

UPDATES = bool(os.environ.get("LOCALRUN_UPDATE_SNAPSHOTS"))
FOLDER = Path(__file__).parent / "snapshots"

_STYLE = re.compile(r"\.([\w-]+?-r\d+) \{([^}]*)\}")
_FILL = re.compile(r"fill: (#[0-9a-fA-F]{6})")
_RECT = re.compile(r'<rect fill="(#[0-9a-fA-F]{6})" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"')
_TEXT = re.compile(r'<text class="([\w-]+)" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)

Shown = list[tuple[float, float, str, str]]


def shown(svg: str) -> Shown:
    """What a picture shows: (y, x, colour, text or width), from top to bottom."""
    fills = {name: (_FILL.search(style) or ["", ""])[1] for name, style in _STYLE.findall(svg)}
    rectangles = [(float(y), float(x), fill, f"<{width}>") for fill, x, y, width in _RECT.findall(svg)]
    texts = [
        (float(y), float(x), fills.get(style, ""), html.unescape(text).replace("\xa0", " "))
        for style, x, y, text in _TEXT.findall(svg)
    ]
    return sorted(rectangles + texts)


def matches(name: str, svg: str) -> bool:
    """Whether the picture `name` shows the same."""
    path = FOLDER / f"{name}.svg"
    return path.exists() and shown(path.read_text(encoding="utf-8")) == shown(svg)


def check(name: str, svg: str, tmp_path: Path) -> None:
    """Fail if the picture `name` shows something else than before; write it instead if asked to."""
    if matches(name, svg):
        return
    path = FOLDER / f"{name}.svg"
    if UPDATES:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(svg, encoding="utf-8")
        return
    assert path.exists(), f"there is no picture {path}; make it with LOCALRUN_UPDATE_SNAPSHOTS=1, and look at it"
    actual = tmp_path / f"{name}.svg"
    actual.write_text(svg, encoding="utf-8")
    before, now = shown(path.read_text(encoding="utf-8")), shown(svg)
    gone = [item for item in before if item not in now][:5]
    new = [item for item in now if item not in before][:5]
    raise AssertionError(f"{name} looks different; see {actual}\nbefore: {gone}\nnow:    {new}")
