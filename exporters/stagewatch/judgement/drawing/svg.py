"""Writes the picture of who waits for whom as SVG, for a browser in light or dark."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from stagewatch.core.words import duration, printable
from stagewatch.judgement.drawing.boxes import Box, Look, Picture, picture
from stagewatch.judgement.drawing.layout import (
    BOX_WIDTH,
    MARGIN,
    PILL_WIDTH,
    Arrow,
    Layout,
    Rect,
    lay_out,
)
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.wait_words import name
from stagewatch.judgement.waits import Wait
from stagewatch.judgement.words import NOBODY, excused, meaning, numbers

_LEAST_WIDTH = 760
_LINE = 18
_MAX_LINES = 4
"""The most lines of a sentence above the picture."""

_STYLE = """
svg { font: 13px ui-sans-serif, system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
.paper { fill: #f7f5f0 } .lane { fill: #efece4 } .ink { fill: #23262b } .dim { fill: #6c6a63 }
.title { font-size: 19px; font-weight: 650; letter-spacing: -.01em }
.name { font-weight: 650; font-size: 14px } .small { font-size: 12px } .role { font-weight: 650 }
.fault { fill: #b3261e; font-weight: 650 }
.box { fill: #fffefb; stroke: #c9c4b6; stroke-width: 1.2 }
.box.root { fill: #fdecea; stroke: #c4342b; stroke-width: 2.6 }
.box.absent { fill: none; stroke-dasharray: 5 4 } .box.root.gone { stroke-dasharray: 7 4 }
.edge-waits { fill: #8d8a80 } .edge-still { fill: #c98a1b } .edge-moves { fill: #3d8f63 }
.edge-root { fill: #c4342b } .edge-absent { fill: none }
.pill { fill: #f7f5f0; stroke: #8d8a80; stroke-width: 1 } .pill.hot { stroke: #c4342b }
.pill.maybe { stroke-dasharray: 4 4 }
.line { fill: none; stroke: #77746a; stroke-width: 1.6 } .line.hot { stroke: #c4342b }
.line.maybe { stroke-dasharray: 6 5 } .head { fill: #77746a } .head.hot { fill: #c4342b }
@media (prefers-color-scheme: dark) {
.paper { fill: #14171b } .lane { fill: #1b1f25 } .ink { fill: #e8e6df } .dim { fill: #99a0a8 }
.fault { fill: #ff9c92 }
.box { fill: #23282f; stroke: #434b55 } .box.root { fill: #3a1c1b; stroke: #ff6b5e }
.box.absent { fill: none } .edge-waits { fill: #7d8792 } .edge-still { fill: #e0a53a }
.edge-moves { fill: #57b884 } .edge-root { fill: #ff6b5e }
.pill { fill: #14171b; stroke: #7d8792 } .pill.hot { stroke: #ff6b5e }
.line { stroke: #88919c } .line.hot { stroke: #ff6b5e }
.head { fill: #88919c } .head.hot { fill: #ff6b5e }
}
"""


def svg(verdicts: Sequence[Verdict], waits: Sequence[Wait]) -> str:
    """The picture of one job."""
    shown = picture(verdicts, waits)
    texts = [_texts(box) for box in shown.boxes]
    heights = [16 + _LINE * len(lines) + 8 for lines in texts]
    rough = lay_out(shown, heights, 0.0)
    width = max(rough.width, _LEAST_WIDTH)
    heading, top = _heading(verdicts, width)
    layout = lay_out(shown, heights, top)
    parts = [*heading, *_lanes(layout, verdicts, width)]
    for arrow in sorted(layout.arrows, key=lambda arrow: _hot(arrow, shown)):
        parts += _arrow(arrow, shown)
    for box, rect, lines in zip(shown.boxes, layout.boxes, texts, strict=True):
        parts += _box(box, rect, lines)
    for arrow in layout.arrows:
        parts += _pill(arrow, shown)
    legend, bottom = _legend(shown, layout.height + 30)
    return _document([*parts, *legend], width, bottom, _text(_headline(verdicts)))


def _document(parts: Iterable[str], width: float, height: float, title: str) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    heads = "".join(
        f'<marker id="head{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path class="head {kind}" d="M0 0L10 5L0 10z"/></marker>'
        for kind in ("", "hot")
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f"<defs>{heads}</defs>",
            f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
            *parts,
            "</svg>\n",
        ]
    )


# ---- Text ---------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """A text that a job may have written, escaped for XML."""
    return escape(printable(text))


def _wide(text: str, size: float) -> float:
    """The approximate width of a text in pixels."""
    return size * sum(1.05 if unicodedata.east_asian_width(c) in "WF" else 0.54 for c in text)


def cut(text: str, width: float, size: float = 13) -> str:
    """The beginning of a text that fits into `width` pixels."""
    text = printable(text, 400)
    if _wide(text, size) <= width:
        return text
    while text and _wide(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"


def _wrapped(text: str, width: float, size: float, most: int) -> list[str]:
    """The text wrapped into at most `most` lines."""
    lines: list[str] = []
    line = ""
    for word in printable(text, 2000).split(" "):
        longer = f"{line} {word}" if line else word
        if line and _wide(longer, size) > width:
            lines.append(line)
            longer = word
        line = longer
    lines.append(line)
    if lines[most:]:
        lines = [*lines[: most - 1], f"{lines[most - 1]} …"]
    return [cut(line, width, size) for line in lines]


def _line(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{escape(text)}</text>'


# ---- Title, sentences and lanes -----------------------------------------------------------------


def _headline(verdicts: Sequence[Verdict]) -> str:
    """What is wrong with the job, in a line."""
    job = f"Job {name(verdicts[0].job_id)}" if verdicts else "No rank"
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    if not wrong:
        excuses = [verdict.excuse for verdict in verdicts if verdict.excuse]
        own = [excuse for excuse in excuses if excuse.kind != "other_role"] or excuses
        return f"{job}: {f'left alone: {excused(own[0])}' if own else 'nothing is wrong'}"
    stalled = [verdict for verdict in verdicts if verdict.stalled]
    hangs = (" waits" if stalled[0].early else " hangs") if stalled else ""
    named = next((verdict for verdict in wrong if verdict.charges), None)
    if named is None:
        return f"{job}{hangs}: {NOBODY.get(wrong[0].evidence, wrong[0].evidence)}"
    several = len(named.charges) > 1
    role = f" of {name(named.role)}" if named.of_several else ""
    does = meaning(named.charges[0], several=several)
    return f"{job}{hangs}: {numbers(named.culprits)}{role} {does}"


def _heading(verdicts: Sequence[Verdict], width: float) -> tuple[list[str], float]:
    """The title and the sentences, and the height at which the picture begins."""
    y = 44.0
    parts = [_line(MARGIN, y, cut(_headline(verdicts), width - 2 * MARGIN, 21), "ink title")]
    y += 8
    shown = [verdict for verdict in verdicts if verdict.charges] or [
        verdict for verdict in verdicts if verdict.wrong
    ]
    for verdict in shown[:3]:
        for line in _wrapped(_sentence(verdict), width - 2 * MARGIN, 13, _MAX_LINES):
            y += _LINE
            parts.append(_line(MARGIN, y, line, "ink"))
        y += 5
    return parts, y + 20


def _sentence(verdict: Verdict) -> str:
    """The verdict's sentence without the job, which the title names."""
    role = f" ({verdict.role})" if verdict.of_several else ""
    text = sentence(verdict).removeprefix(f"job {verdict.job_id}{role}: ")
    return f"{name(verdict.role)}: {text}" if role else f"{text[:1].upper()}{text[1:]}"


def _lanes(layout: Layout, verdicts: Sequence[Verdict], width: float) -> list[str]:
    by_role = {verdict.role: verdict for verdict in verdicts}
    parts = []
    for role, rect in layout.lanes:
        wide = max(rect.width, width - 2 * MARGIN)
        parts.append(
            f'<rect class="lane" x="{rect.x:.0f}" y="{rect.y:.0f}" width="{wide:.0f}" '
            f'height="{rect.height:.0f}" rx="12"/>'
        )
        title = f"{name(role)}{_state(by_role.get(role))}"
        parts.append(_line(rect.x + 14, rect.y + 22, cut(title, wide - 28), "dim role"))
    return parts


def _state(verdict: Verdict | None) -> str:
    """The state of a role in three words."""
    if verdict is None:
        return ""
    live = len(verdict.case.live)
    ranks = f" · {live} {'rank' if live == 1 else 'ranks'}"
    ages = [rank.progress_age_seconds for rank in verdict.case.live if rank.overdue]
    if verdict.stalled:
        silent = min((age for age in ages if age is not None), default=0.0)
        return f"{ranks} · without progress for {duration(silent)}"
    if verdict.excuse:
        return f"{ranks} · excused: {verdict.excuse.kind.replace('_', ' ')}"
    return f"{ranks} · goes on" if live else " · no rank lives"


# ---- Boxes and arrows ---------------------------------------------------------------------------


def _texts(box: Box) -> list[tuple[str, str]]:
    """The lines of a box with their classes."""
    width = BOX_WIDTH - 30
    lines = [(cut(box.title, width, 14.5), "ink name")]
    if box.charge:
        lines += [(line, "fault small") for line in _wrapped(box.charge, width, 12.5, 2)]
    return lines + [(cut(line, width, 12.5), "dim small") for line in box.lines]


def _box(box: Box, rect: Rect, lines: Sequence[tuple[str, str]]) -> list[str]:
    at = f'x="{rect.x:.0f}" y="{rect.y:.0f}"'
    size = f'width="{rect.width:.0f}" height="{rect.height:.0f}"'
    hover = "\n".join(filter(None, (box.title, box.charge, *box.lines)))
    parts = [
        f"<g><title>{escape(chr(10).join(map(printable, hover.splitlines())))}</title>",
        f'<rect class="box {box.look.value}" {at} {size} rx="9"/>',
        f'<rect class="edge-{box.look.value}" x="{rect.x + 7:.0f}" y="{rect.y + 10:.0f}" '
        f'width="4" height="{rect.height - 20:.0f}" rx="2"/>',
    ]
    for number, (text, kind) in enumerate(lines):
        parts.append(_line(rect.x + 20, rect.y + 24 + number * _LINE, text, kind))
    return [*parts, "</g>"]


def _hot(arrow: Arrow, shown: Picture) -> bool:
    return any(shown.boxes[target].look is Look.ROOT for target in arrow.targets)


def _classes(arrow: Arrow, shown: Picture) -> str:
    return " ".join(
        filter(None, ("hot" if _hot(arrow, shown) else "", "" if arrow.link.seen else "maybe"))
    )


def _arrow(arrow: Arrow, shown: Picture) -> list[str]:
    kind = _classes(arrow, shown)
    parts = [f'<path class="line {kind}" d="{line}"/>' for line in arrow.lines]
    for line, target in arrow.heads:
        hot = "hot" if shown.boxes[target].look is Look.ROOT else ""
        own = f"{hot} {'' if arrow.link.seen else 'maybe'}".strip()
        parts.append(f'<path class="line {own}" marker-end="url(#head{hot})" d="{line}"/>')
    return parts


def _pill(arrow: Arrow, shown: Picture) -> list[str]:
    rect, (first, second) = arrow.pill, arrow.link.label
    x, y = rect.middle
    parts = [
        f'<rect class="pill {_classes(arrow, shown)}" x="{rect.x:.0f}" y="{rect.y:.0f}" '
        f'width="{rect.width:.0f}" height="{rect.height:.0f}" rx="{rect.height / 2:.0f}"/>'
    ]
    for text, kind, at in ((first, "ink small", y - 3), (second, "dim small", y + 13)):
        line = escape(cut(text, PILL_WIDTH - 20, 11.5))
        parts.append(
            f'<text x="{x:.0f}" y="{at:.0f}" class="{kind}" text-anchor="middle">{line}</text>'
        )
    return [f"<g><title>{_text(first)}: {_text(second)}</title>", *parts, "</g>"]


def _legend(shown: Picture, y: float) -> tuple[list[str], float]:
    """The legend of the marks in the picture, and the height at which the picture ends."""
    looks = {box.look for box in shown.boxes}
    x, parts = float(MARGIN), []
    for look, text in _LOOKS.items():
        if look in looks:
            parts.append(
                f'<rect class="edge-{look.value}" x="{x:.0f}" y="{y - 9:.0f}" width="10" '
                f'height="10" rx="2"/>'
            )
            parts.append(_line(x + 16, y, text, "dim small"))
            x += 34 + _wide(text, 12)
    for seen, text in ((True, "waits for"), (False, "may wait for (assumed)")):
        if any(link.seen is seen for link in shown.links):
            kind = "" if seen else " maybe"
            parts.append(
                f'<path class="line{kind}" marker-end="url(#head)" '
                f'd="M{x:.0f} {y - 4:.0f} L{x + 34:.0f} {y - 4:.0f}"/>'
            )
            parts.append(_line(x + 42, y, text, "dim small"))
            x += 62 + _wide(text, 12)
    if shown.left_out:
        y += 20
        parts.append(_line(MARGIN, y, f"and {shown.left_out} more boxes", "dim small"))
    return parts, y + 24


_LOOKS = {
    Look.ROOT: "at fault",
    Look.WAITS: "waits",
    Look.STILL: "stands still",
    Look.MOVES: "goes on",
}
