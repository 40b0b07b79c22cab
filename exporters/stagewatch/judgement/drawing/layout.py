"""Places boxes and links: a waiter stands left of what it waits for, and each role has a lane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from stagewatch.judgement.drawing.boxes import Box, Link, Look, Picture

BOX_WIDTH, PILL_WIDTH, GAP = 240, 206, 300
PILL_HEIGHT = 40
MARGIN, LANE_HEADER, SPACE = 36, 34, 20
_PASS_HEIGHT = 14
"""The height that a link needs in a column that it passes."""
_ROW = 58
"""The distance of links that lead back, under all lanes."""
_PORT = 16


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """A link, or the half of it that leads forward or back."""

    link: Link
    targets: tuple[int, ...]
    pill: Rect
    lines: tuple[str, ...]
    """Paths of SVG without a head, from the sources to the pill."""
    heads: tuple[tuple[str, int], ...]
    """Paths with a head, from the pill to the targets."""


@dataclass(slots=True)
class Layout:
    """The places of all boxes, lanes and arrows."""

    boxes: list[Rect]
    lanes: list[tuple[str, Rect]]
    arrows: list[Arrow] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


@dataclass(slots=True)
class _Half:
    """The part of a link that leads in one direction: forward or back."""

    link: Link
    sources: list[int]
    targets: list[int]
    back: bool
    gap: int = 0
    """Its pill stands right of this column."""
    passes: dict[tuple[str, int], float] = field(default_factory=dict)
    """The height at which it passes each column of a lane."""


def lay_out(picture: Picture, heights: Sequence[float], top: float) -> Layout:
    """The layout of a picture; `heights` are those of its boxes, and it begins at `top`."""
    layers = _layers(picture)
    halves = _halves(picture.links, layers)
    order = _roles(picture.boxes, layers)
    placed = _stacked(picture.boxes, heights, layers, halves, order, top)
    layout = Layout(placed.rects, placed.lanes)
    bottom = max((rect.y + rect.height for _, rect in placed.lanes), default=top)
    columns = max(layers, default=0) + 1
    layout.width = _column(columns) - GAP + MARGIN
    layout.arrows, layout.height = _routed(picture, placed, layers, halves, bottom)
    return layout


def _column(layer: int) -> float:
    return MARGIN + 14 + layer * (BOX_WIDTH + GAP)


# ---- Columns ------------------------------------------------------------------------------------


def _layers(picture: Picture) -> list[int]:
    """The column of each box; those in a circle stand in the order in which they wait."""
    count = len(picture.boxes)
    after: list[set[int]] = [set() for _ in range(count)]
    for link in picture.links:
        for source in link.sources:
            after[source] |= {target for target in link.targets if target != source}
    awaited = {target for targets in after for target in targets}
    roots = {place for place, box in enumerate(picture.boxes) if box.look is Look.ROOT}
    sizes = [box.size for box in picture.boxes]
    starts = sorted(range(count), key=lambda box: (box in awaited, box in roots, -sizes[box], box))
    order, forward = _without_circles(after, starts)
    layers = [0] * count
    for box in order:
        for target in forward[box]:
            layers[target] = max(layers[target], layers[box] + 1)
    before = {target for targets in forward for target in targets}
    for box in range(count):
        if box not in before and forward[box]:
            layers[box] = min(layers[target] for target in forward[box]) - 1
    return layers


def _without_circles(
    after: Sequence[set[int]], starts: Sequence[int]
) -> tuple[list[int], list[set[int]]]:
    """The boxes ordered so that waiters come first, and the waits between them that do not lead
    back."""
    state: dict[int, bool] = {}
    done: list[int] = []
    forward: list[set[int]] = [set() for _ in after]

    def visit(box: int) -> None:
        state[box] = False
        for target in sorted(after[box]):
            if state.get(target, True):
                forward[box].add(target)
            if target not in state:
                visit(target)
        state[box] = True
        done.append(box)

    for box in starts:
        if box not in state:
            visit(box)
    return done[::-1], forward


def _halves(links: Sequence[Link], layers: Sequence[int]) -> list[_Half]:
    """The links; a link that leads both forward and back is cut into two."""
    halves = []
    for link in links:
        first = min(layers[target] for target in link.targets)
        early = [source for source in link.sources if layers[source] < first]
        for sources in (early, [source for source in link.sources if source not in early]):
            last = max((layers[source] for source in sources), default=-1)
            ahead = [target for target in link.targets if layers[target] > last]
            back = [target for target in link.targets if layers[target] <= last]
            if sources and ahead:
                gap = min(layers[target] for target in ahead) - 1
                halves.append(_Half(link, sources, ahead, back=False, gap=gap))
            if sources and back:
                halves.append(_Half(link, sources, back, back=True))
    return halves


def _roles(boxes: Sequence[Box], layers: Sequence[int]) -> list[str]:
    """The roles from top to bottom: a role stands above those that it waits for."""
    first: dict[str, int] = {}
    for box, layer in zip(boxes, layers, strict=True):
        first[box.role] = min(first.get(box.role, layer), layer)
    last: defaultdict[str, int] = defaultdict(int)
    for box, layer in zip(boxes, layers, strict=True):
        last[box.role] = max(last[box.role], layer)
    return sorted(first, key=lambda role: (first[role], last[role], role))


# ---- Lanes --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Placed:
    rects: list[Rect]
    lanes: list[tuple[str, Rect]]


def _stacked(
    boxes: Sequence[Box],
    heights: Sequence[float],
    layers: Sequence[int],
    halves: Sequence[_Half],
    order: Sequence[str],
    top: float,
) -> _Placed:
    """Each lane is as high as its fullest column, and each column stands in its middle."""
    items: defaultdict[tuple[str, int], list[tuple[float, int | _Half]]] = defaultdict(list)
    for place, box in enumerate(boxes):
        items[box.role, layers[place]].append((heights[place], place))
    for half in halves:
        for cell in _passed(half, boxes, layers):
            items[cell].append((_PASS_HEIGHT, half))
    rects = [Rect(0, 0, 0, 0)] * len(boxes)
    lanes = []
    width = _column(max(layers, default=0)) + BOX_WIDTH + 14 - MARGIN
    y = top
    for role in order:
        cells = {cell: stack for cell, stack in items.items() if cell[0] == role}
        high = max(_height(stack) for stack in cells.values())
        for (_, layer), stack in cells.items():
            at = y + LANE_HEADER + (high - _height(stack)) / 2
            for height, item in stack:
                if isinstance(item, _Half):
                    item.passes[role, layer] = at + height / 2
                else:
                    rects[item] = Rect(_column(layer), at, BOX_WIDTH, height)
                at += height + SPACE
        lanes.append((role, Rect(MARGIN, y, width, LANE_HEADER + high + 16)))
        y += LANE_HEADER + high + 16 + 14
    return _Placed(rects, lanes)


def _height(stack: Sequence[tuple[float, object]]) -> float:
    return sum(height for height, _ in stack) + SPACE * (len(stack) - 1)


def _passed(half: _Half, boxes: Sequence[Box], layers: Sequence[int]) -> list[tuple[str, int]]:
    """The columns of lanes that a link passes on its way."""
    if half.back:
        return []
    cells: dict[tuple[str, int], None] = {}
    for source in half.sources:
        for layer in range(layers[source] + 1, half.gap + 1):
            cells[boxes[source].role, layer] = None
    for target in half.targets:
        for layer in range(half.gap + 1, layers[target]):
            cells[boxes[target].role, layer] = None
    return list(cells)


# ---- Arrows -------------------------------------------------------------------------------------


def _routed(
    picture: Picture,
    placed: _Placed,
    layers: Sequence[int],
    halves: Sequence[_Half],
    bottom: float,
) -> tuple[list[Arrow], float]:
    """The arrows, and the height of all."""
    pills = _pills(placed.rects, halves)
    ports = _Ports(placed.rects)
    ahead = [(half, pill) for half, pill in zip(halves, pills, strict=True) if pill]
    for half, pill in ahead:
        for source in half.sources:
            ports.want(source, "right", pill.y)
        for target in half.targets:
            ports.want(target, "left", pill.y)
    arrows = [_forward(half, pill, picture.boxes, layers, ports) for half, pill in ahead]
    lowest = _lowest(placed.rects, layers)
    back = [half for half in halves if half.back]
    for row, half in enumerate(back):
        arrows.append(_backward(half, placed.rects, lowest, bottom + 26 + row * _ROW))
    return arrows, bottom + (26 + len(back) * _ROW if back else 0)


def _pills(rects: Sequence[Rect], halves: Sequence[_Half]) -> list[Rect | None]:
    """The places of the pills: those of a gap stand under each other, as near to their boxes as
    there is room."""
    wanted: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for place, half in enumerate(halves):
        if not half.back:
            ends = [rects[box].middle[1] for box in half.sources]
            goals = [rects[box].middle[1] for box in half.targets]
            middle = (sum(ends) / len(ends) + sum(goals) / len(goals)) / 2
            wanted[half.gap].append((middle, place))
    pills: list[Rect | None] = [None] * len(halves)
    for gap, column in wanted.items():
        x = _column(gap) + BOX_WIDTH + (GAP - PILL_WIDTH) / 2
        middles = _apart(sorted(column))
        for middle, place in middles:
            pills[place] = Rect(x, middle - PILL_HEIGHT / 2, PILL_WIDTH, PILL_HEIGHT)
    return pills


def _apart(column: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The pills of a gap in the same order, moved apart until none covers another."""
    least = PILL_HEIGHT + 10
    moved: list[tuple[float, int]] = []
    for middle, place in column:
        moved.append((max(middle, moved[-1][0] + least) if moved else middle, place))
    drift = sum(new[0] - old[0] for new, old in zip(moved, column, strict=True)) / len(moved)
    shift = min(drift, max(moved[0][0] - column[0][0] + drift, 0.0))
    return [(middle - shift, place) for middle, place in moved]


class _Ports:
    """The points where links touch the sides of boxes."""

    def __init__(self, rects: Sequence[Rect]) -> None:
        self._rects = rects
        self._wanted: defaultdict[tuple[int, str], list[float]] = defaultdict(list)

    def want(self, box: int, side: str, towards: float) -> None:
        """Reserve a port; the ports of a side are in the order of the places that they lead to."""
        self._wanted[box, side].append(towards)

    def at(self, box: int, side: str, towards: float) -> tuple[float, float]:
        """The reserved port."""
        rect, all_of = self._rects[box], sorted(self._wanted[box, side])
        step = min(_PORT, (rect.height - 16) / len(all_of))
        offset = (all_of.index(towards) - (len(all_of) - 1) / 2) * step
        x = rect.x if side == "left" else rect.x + rect.width
        return x, rect.middle[1] + offset


def _forward(
    half: _Half, pill: Rect, boxes: Sequence[Box], layers: Sequence[int], ports: _Ports
) -> Arrow:
    middle = pill.y + pill.height / 2
    lines, heads = [], []
    for source in half.sources:
        points = [ports.at(source, "right", pill.y)]
        for layer in range(layers[source] + 1, half.gap + 1):
            points += _across(half, boxes[source].role, layer)
        lines.append(_curve([*points, (pill.x, middle)]))
    for target in half.targets:
        points = [(pill.x + pill.width, middle)]
        x, y = ports.at(target, "left", pill.y)
        for layer in range(half.gap + 1, layers[target]):
            points += _across(half, boxes[target].role, layer)
        if len(points) > 1:  # level through the gap, under or over its pills
            points.append((x - 60, points[-1][1]))
        heads.append((f"{_curve([*points, (x - 12, y)])} L{x - 2:.0f} {y:.0f}", target))
    return Arrow(half.link, tuple(half.targets), pill, tuple(lines), tuple(heads))


def _across(half: _Half, role: str, layer: int) -> list[tuple[float, float]]:
    y = half.passes[role, layer]
    return [(_column(layer) - 8, y), (_column(layer) + BOX_WIDTH + 8, y)]


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A line that leaves and reaches each point level."""
    (x, y), path = points[0], f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for to_x, to_y in points[1:]:
        half = (to_x - x) / 2
        path += f" C{x + half:.0f} {y:.0f} {to_x - half:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
        x, y = to_x, to_y
    return path


def _lowest(rects: Sequence[Rect], layers: Sequence[int]) -> set[int]:
    """The boxes with no other box below them."""
    lowest: dict[int, int] = {}
    for box, layer in enumerate(layers):
        if layer not in lowest or rects[box].y > rects[lowest[layer]].y:
            lowest[layer] = box
    return set(lowest.values())


def _backward(half: _Half, rects: Sequence[Rect], lowest: set[int], y: float) -> Arrow:
    """The arrow of a link that leads back to the left, under all lanes."""
    left = min(rects[target].middle[0] for target in half.targets)
    right = max(rects[source].middle[0] for source in half.sources)
    own = right - left < 1  # a box that waits for itself
    middle = (left + right) / 2 + (BOX_WIDTH / 2 + PILL_WIDTH / 2 + 8 if own else 0)
    pill = Rect(middle - PILL_WIDTH / 2, y, PILL_WIDTH, PILL_HEIGHT)
    level = y + PILL_HEIGHT / 2
    lines, heads = [], []
    for source in half.sources:
        x, points = _under(source, rects[source], lowest, own_side=1)
        end = pill.x + (pill.width if x > middle else 0)
        lines.append(f"{points} L{x:.0f} {level - 16:.0f} {_bend(x, level, end)}")
    for target in half.targets:
        x, points = _under(target, rects[target], lowest, own_side=-1)
        start = pill.x + (pill.width if x > middle else 0)
        down = f"M{start:.0f} {level:.0f} L{x + (16 if x < start else -16):.0f} {level:.0f}"
        up = f"{down} Q{x:.0f} {level:.0f} {x:.0f} {level - 16:.0f}"
        rect = rects[target]
        if target in lowest:
            heads.append((f"{up} L{x:.0f} {rect.y + rect.height + 2:.0f}", target))
        else:
            into = rect.y + rect.height - 14
            corner = f"L{x:.0f} {into + 12:.0f} Q{x:.0f} {into:.0f} {x + 10:.0f} {into:.0f}"
            heads.append((f"{up} {corner} L{rect.x - 2:.0f} {into:.0f}", target))
    return Arrow(half.link, tuple(half.targets), pill, tuple(lines), tuple(heads))


def _under(box: int, rect: Rect, lowest: set[int], own_side: int) -> tuple[float, str]:
    """Where a link goes down from a box, and the path to this point."""
    if box in lowest:
        x = rect.middle[0] + own_side * 24
        return x, f"M{x:.0f} {rect.y + rect.height:.0f}"
    y = rect.y + rect.height - 14
    if own_side < 0:
        return rect.x - 24, ""
    x = rect.x + rect.width + 24
    edge = rect.x + rect.width
    return x, f"M{edge:.0f} {y:.0f} L{x - 12:.0f} {y:.0f} Q{x:.0f} {y:.0f} {x:.0f} {y + 12:.0f}"


def _bend(x: float, level: float, end: float) -> str:
    side = 16 if end > x else -16
    return f"Q{x:.0f} {level:.0f} {x + side:.0f} {level:.0f} L{end:.0f} {level:.0f}"
