"""The lines of `stagewatch top`: their columns, order and width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stagewatch.core.words import duration, printable
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import UNTAUGHT_SECONDS
from stagewatch.judgement.words import collective
from stagewatch.ranks.wait_class import WaitClass

Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One rank at this moment, with what other ranks and other looks tell of it."""

    rank: RankFacts
    at_fault: bool = False
    steps_per_second: float | None = None
    work_and_waiting: tuple[float, float] | None = None
    """Shares of its time outside and inside of collectives."""

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.rank.wait_class is WaitClass.GONE


def key(rank: RankFacts) -> Key:
    """The identity of a rank's process on this node."""
    return rank.job_id, rank.role, rank.rank, rank.pid


@dataclass(frozen=True, slots=True)
class View:
    """The result of one look."""

    sentences: Sequence[tuple[str, bool]] = ()
    """The verdicts, the gravest first, and whether each tells of something wrong."""
    rows: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a style in the terminal's own colours."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    title: str
    width: int
    """The most that it takes."""
    cell: Callable[[Row, int], Cell]
    """What stands in it, in so many columns of the terminal."""
    left: bool = False
    """Whether it holds words, and not numbers."""
    fit: bool = False
    """Whether it takes no more than its longest word."""


_STAGES = {
    "rollout": "cyan",
    "reward": "bright_cyan",
    "logprob": "bright_blue",
    "advantage": "bright_magenta",
    "train": "green",
    "weights_update": "magenta",
    "checkpoint": "blue",
    "eval": "yellow",
    "idle": "dim",
    "other": "dim",
}
_CLASSES = {
    "compute": "green",
    "spin": "yellow",
    "poll": "yellow",
    "io": "magenta",
    "stopped": "red",
    "traced": "red",
    "gone": "red",
    "unknown": "dim",
}


def _mark(row: Row, _width: int) -> Cell:
    return Cell("►" if row.at_fault else "!" if row.rank.overdue else "", "bold red")


def _plain(text: Callable[[Row], str]) -> Callable[[Row, int], Cell]:
    return lambda row, _width: Cell(text(row), "bold red" if row.at_fault else "")


def short(seconds: float | None) -> str:
    """A duration in one word."""
    if seconds is None:
        return "-"
    return "0s" if seconds < 0.1 else duration(seconds).replace(" ", "")


def _rate(row: Row) -> str:
    """Steps per second, minute or hour, so that the number is at least one."""
    if row.steps_per_second is None:
        return "-"
    for unit, factor in (("s", 1), ("min", 60), ("h", 3600)):
        if row.steps_per_second * factor >= 1:
            return f"{row.steps_per_second * factor:.3g}/{unit}"
    return "0"


def _age(row: Row, width: int) -> Cell:
    """A bar that is full when the rank's budget is used up, and the age of the last progress."""
    age = row.rank.progress_age_seconds
    if age is None:
        return Cell("-".rjust(width), "dim")
    length = width - 9
    share = age / (row.rank.budget_seconds or UNTAUGHT_SECONDS)
    full = length if row.rank.overdue else min(length, int(share * length))
    style = "bold red" if row.rank.overdue else "yellow" if share >= 0.5 else "green"
    return Cell("━" * full + "─" * (length - full) + short(age).rjust(9), style)


def _step(row: Row) -> str:
    return "-" if row.rank.step is None else str(row.rank.step)


def _cpu(row: Row) -> str:
    return "-" if row.rank.cpu_ratio is None else f"{row.rank.cpu_ratio:.0%}"


def _work(row: Row) -> str:
    return "-" if row.work_and_waiting is None else "{:.0%}/{:.0%}".format(*row.work_and_waiting)


def _stage(row: Row, _width: int) -> Cell:
    stage, substage = row.rank.stage or "", row.rank.substage
    text = f"{stage}/{substage}" if substage else stage or "-"
    return Cell(text, "bold red" if row.at_fault else _STAGES.get(stage, ""))


def _class(row: Row, _width: int) -> Cell:
    name = row.rank.wait_class.value
    return Cell(name, "bold red" if row.at_fault else _CLASSES.get(name, ""))


def _inside(row: Row) -> str:
    """The collective that it is inside of, else its place in the user's code where known."""
    rank = row.rank
    inside = [
        f"{collective(name, call)}, {duration(call.seconds)}" for name, call in rank.inside.items()
    ]
    return "; ".join(inside) or rank.stack.frame or rank.first_failure


COLUMNS = (
    Column("", 1, _mark, left=True),
    Column("JOB", 16, _plain(lambda row: row.rank.job_id), left=True, fit=True),
    Column("ROLE", 12, _plain(lambda row: row.rank.role), left=True, fit=True),
    Column("RANK", 5, _plain(lambda row: str(row.rank.rank))),
    Column("PID", 7, _plain(lambda row: str(row.rank.pid or "-"))),
    Column("STAGE", 26, _stage, left=True),
    Column("OPEN", 8, _plain(lambda row: short(row.rank.stage_open_seconds))),
    Column("STEP", 7, _plain(_step)),
    Column("STEPS", 8, _plain(_rate)),
    Column("PROGRESS", 28, _age, left=True),
    Column("CLASS", 7, _class, left=True),
    Column("CPU", 5, _plain(_cpu)),
    Column("WORK/WAIT", 9, _plain(_work)),
    Column("S", 1, _plain(lambda row: row.rank.state), left=True),
    Column("WCHAN", 20, _plain(lambda row: row.rank.wait_channel), left=True),
    Column("INSIDE", 44, _plain(_inside), left=True),
)
_LEAST = {"STAGE": 14, "PROGRESS": 15, "INSIDE": 16, "WCHAN": 12, "JOB": 8}
"""What a column can do with."""
_DROPPED_FIRST = ("S", "WCHAN", "PID", "INSIDE", "OPEN", "WORK/WAIT", "ROLE", "STEPS", "CPU", "JOB")
"""What goes where the terminal is too narrow."""
_CUT_FIRST = ("INSIDE", "WCHAN", "JOB", "STAGE", "PROGRESS")

Layout = Sequence[tuple[Column, int]]
"""The columns that are shown, each with its width; one blank stands between two."""


def layout(rows: Sequence[Row], width: int) -> Layout:
    """The columns that fit."""
    widths = {column.title: _wanted(column, rows) for column in COLUMNS}
    if len({row.rank.job_id for row in rows}) == 1:
        del widths["JOB"]
    for title in _DROPPED_FIRST:
        least = {name: min(wide, _LEAST.get(name, wide)) for name, wide in widths.items()}
        if _total(least) > width:
            widths.pop(title, None)
    for title in _CUT_FIRST:
        over = _total(widths) - width
        if over > 0 and title in widths:
            widths[title] = max(min(widths[title], _LEAST[title]), widths[title] - over)
    return [(column, widths[column.title]) for column in COLUMNS if column.title in widths]


def _wanted(column: Column, rows: Sequence[Row]) -> int:
    if not column.fit:
        return column.width
    longest = max((len(column.cell(row, column.width).text) for row in rows), default=0)
    return min(column.width, max(len(column.title), longest))


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(widths) - 1


def cells(row: Row, columns: Layout) -> list[Cell]:
    """A line: texts of users made printable, cut and aligned to the columns."""
    line = []
    for column, width in columns:
        cell = column.cell(row, width)
        text = printable(cell.text)
        text = text if len(text) <= width else f"{text[: width - 1]}~"
        text = text.ljust(width) if column.left else text.rjust(width)
        line.append(Cell(text, "dim" if row.gone and not row.at_fault else cell.style))
    return line


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """The ranks at fault, then those that are overdue, then by job and rank; the dead come last."""
    return sorted(
        rows, key=lambda row: (not row.at_fault, not row.rank.overdue, row.gone, key(row.rank))
    )
