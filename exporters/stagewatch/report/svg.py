"""Figures as SVG: the few shapes that the reports draw, and their two styles.

Everything is built as elements, so that no label can become markup.  Shapes have classes: on a page
its style sheet colours them, for light and dark; a figure of its own brings plain colours on
white, which every program that converts SVG for a paper understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

FONT_SIZE = 12
_CHARACTER = 0.56
"""Mean width of a character, in font sizes."""

COLOURS = {
    "ink": "#1c2128",
    "muted": "#5c6672",
    "line": "#c6ccd4",
    "soft": "#eef1f4",
    "ground": "#ffffff",
    "inject": "#c21f2f",
    "effect": "#b26a00",
    "detect": "#0b5cad",
    "localise": "#6b3fb5",
    "error": "#1c2128",
    "clear": "#1a7f37",
    "series": "#0b5cad",
    "band": "#d9e6f4",
    "heat1": "#fbe3c0",
    "heat2": "#f6bd7a",
    "heat3": "#ea8a4a",
    "heat4": "#d4502f",
    "heat5": "#9e1b25",
    "well": "#e3efe6",
}
"""Colours of the light style by class; the page's style sheet has both under the same names."""

_PLAIN_STYLE = "".join(
    [
        "text{font-family:Helvetica,Arial,sans-serif;fill:#1c2128}",
        ".muted-text{fill:#5c6672}",
        ".f-around{fill:#fff;stroke:#fff;stroke-width:4px;stroke-linejoin:round}",
        *(f".f-{name}{{fill:{colour}}}" for name, colour in COLOURS.items()),
        *(f".s-{name}{{stroke:{colour};fill:none}}" for name, colour in COLOURS.items()),
    ]
)


class Figure:
    """A drawing of a size in CSS pixels; `name` is its file's name and must be unique on a page."""

    def __init__(self, name: str, title: str, width: float, height: float) -> None:
        self.name = name
        self.title = title
        self.width = width
        self.height = height
        size = {"viewBox": f"0 0 {_n(width)} {_n(height)}", "role": "img"}
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
        ElementTree.SubElement(self._root, "title").text = _clean(title)
        pattern = ElementTree.SubElement(
            ElementTree.SubElement(self._root, "defs"),
            "pattern",
            {
                "id": f"{name}-gap",
                "width": "6",
                "height": "6",
                "patternUnits": "userSpaceOnUse",
                "patternTransform": "rotate(45)",
            },
        )
        ElementTree.SubElement(pattern, "path", {"d": "M0 0V6", "class": "s-line"}).set(
            "stroke-width", "3"
        )

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, tip: str = ""
    ) -> None:
        """A filled rectangle; `gap` is the hatching of what is not known."""
        place = {"x": _n(x), "y": _n(y), "width": _n(max(width, 0)), "height": _n(max(height, 0))}
        element = ElementTree.SubElement(self._root, "rect", place)
        if colour == "gap":
            element.set("fill", f"url(#{self.name}-gap)")
        else:
            element.set("class", f"f-{colour}")
        if tip:
            ElementTree.SubElement(element, "title").text = _clean(tip)

    def path(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        *,
        width: float = 1.5,
        dash: str = "",
    ) -> None:
        """A line through points; a single one is drawn as a dot."""
        if len(points) == 1:
            x, y = points[0]
            self.rect(x - width, y - width, 2 * width, 2 * width, colour)
            return
        steps = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        element = ElementTree.SubElement(
            self._root,
            "polyline",
            {"points": steps, "class": f"s-{colour}", "stroke-width": _n(width)},
        )
        element.set("stroke-linejoin", "round")
        if dash:
            element.set("stroke-dasharray", dash)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        size: float = FONT_SIZE,
        muted: bool = False,
        bold: bool = False,
        colour: str = "",
        clear: bool = False,
    ) -> None:
        """Text on a base line; `anchor` is start, middle or end; `clear`: lines stop before it."""
        if clear:  # drawn twice, since not every converter knows paint-order
            self.text(x, y, text, anchor=anchor, size=size, colour="around")
        element = ElementTree.SubElement(
            self._root, "text", {"x": _n(x), "y": _n(y), "font-size": _n(size)}
        )
        if anchor != "start":
            element.set("text-anchor", anchor)
        if muted or colour:
            element.set("class", f"f-{colour}" if colour else "muted-text")
        if bold:
            element.set("font-weight", "600")
        element.text = _clean(text)

    def inline(self) -> str:
        """For a page that has the styles."""
        return ElementTree.tostring(self._root, encoding="unicode")

    def standalone(self) -> str:
        """For a file of its own: on white, with a size."""
        self._root.set("width", _n(self.width))
        self._root.set("height", _n(self.height))
        style = ElementTree.Element("style")
        style.text = _PLAIN_STYLE
        ground = ElementTree.Element("rect", {"width": "100%", "height": "100%"})
        ground.set("fill", "#ffffff")
        self._root.insert(1, style)
        self._root.insert(2, ground)
        text = ElementTree.tostring(self._root, encoding="unicode")
        for element in (style, ground):
            self._root.remove(element)
        del self._root.attrib["width"], self._root.attrib["height"]
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """About how wide a text is drawn."""
    return len(text) * size * _CHARACTER


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """A text, cut with an ellipsis where it would be wider; of a path the end is kept, and the node
    before it."""
    room = max(2, int(width / (size * _CHARACTER)))
    if len(text) <= room:
        return text
    node, space, path = text.partition(" ")
    if "/" not in text:
        return f"{text[: room - 1]}…"
    if "/" in node or len(node) > room // 2:
        node, space, path = "", "", text
    return f"{node}{space}…{path[1 - room + len(node + space) :]}"


def _clean(text: str) -> str:
    """XML has no place for control characters."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
