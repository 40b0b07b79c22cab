"""What a figure shows to those who look at it."""

from __future__ import annotations

from xml.etree import ElementTree

from matplotlib.backends.backend_agg import FigureCanvasAgg

from stagewatch.report.drawing import Drawing


def words(drawing: Drawing) -> list[str]:
    """The text that a figure shows."""
    root = ElementTree.fromstring(drawing.inline())
    return ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")]


def cut_off(drawing: Drawing) -> float:
    """Inches by which a figure is larger than its paper, at the side where most is lost."""
    FigureCanvasAgg(drawing.figure).draw()
    drawn = drawing.figure.get_tightbbox()
    width, height = drawing.figure.get_size_inches()
    return max(0.0, -drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)
