"""The lines of `stagewatch top`: their columns, order and width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stagewatch.core.words import duration, printable
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import UNTAUGHT_SECONDS
from stagewatch.judgement.words import collective
from stagewatch.ranks.wait_class import WaitClass


@dataclass(frozen=True, slots=True)
class Row:
    """One rank at this moment.  Unknown values are `None` or empty."""

    job_id: str
    role: str
    rank: str
    node: str = ""
    cluster: str = ""
    pid: int | None = None
    stage: str = ""
    substage: str = ""
    open_seconds: float | None = None
    step: int | None = None
    steps_per_second: float | None = None
    age_seconds: float | None = None
    """Time since its last progress."""
    budget_seconds: float | None = None
    """How long its stage may go without progress."""
    overdue: bool = False
    wait_class: str = WaitClass.UNKNOWN.value
    state: str = ""
    wait_channel: str = ""
    cpu_ratio: float | None = None
    work_and_waiting: tuple[float, float] | None = None
    """Shares of its time outside and inside of collectives."""
    inside: str = ""
    """The collective that it is inside of, else its place in the user's code, if known."""
    at_fault: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the rank."""
        return self.cluster, self.job_id, self.role, self.rank.zfill(9), self.node

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.wait_class == WaitClass.GONE.value


def row_of(rank: RankFacts) -> Row:
    """The rank of these facts, without what needs other looks or ranks."""
    inside = [
        f"{collective(name, call)}, {duration(call.seconds)}" for name, call in rank.inside.items()
    ]
    return Row(
        job_id=rank.job_id,
        role=rank.role,
        rank=str(rank.rank),
        node=rank.node,
        pid=rank.pid or None,
        stage=rank.stage or "",
        substage=rank.substage,
        open_seconds=rank.stage_open_seconds,
        step=rank.step,
        age_seconds=rank.progress_age_seconds,
        budget_seconds=rank.budget_seconds,
        overdue=rank.overdue,
        wait_class=rank.wait_class.value,
        state=rank.state,
        wait_channel=rank.wait_channel,
        cpu_ratio=rank.cpu_ratio,
        inside="; ".join(inside) or rank.stack.frame or rank.first_failure,
    )


@dataclass(frozen=True, slots=True)
class View:
    """The result of one look."""

    sentences: Sequence[tuple[str, bool]] = ()
    """The verdicts, the gravest first, each with whether something is wrong."""
    rows: Sequence[Row] = ()


class Source(Protocol):
    """Reads ranks; one thread reads, others may ask for stacks meanwhile."""

    title: str
    """The title: the node or the job."""

    def look(self) -> View:
        """The ranks now.  Raises `StagewatchError` with a line to act on."""
        ...

    def stacks(self, row: Row) -> str:
        """The stacks of a rank and of its job's others, as text; may take half a minute."""
        ...

    def close(self) -> None:
        """Close everything, after the last look."""
        ...


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
    """The largest width."""
    cell: Callable[[Row, int], Cell]
    """Makes the content of a row for a width in columns of the terminal."""
    sort: Callable[[Row], str | float]
    """The key by which rows are sorted, in rising order."""
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


def _worst_first(row: Row) -> str:
    return f"{not row.at_fault:d}{not row.overdue:d}{row.gone:d}"


def _mark(row: Row, _width: int) -> Cell:
    return Cell("►" if row.at_fault else "!" if row.overdue else "", "bold red")


def _plain(text: Callable[[Row], str]) -> Callable[[Row, int], Cell]:
    return lambda row, _width: Cell(text(row), "bold red" if row.at_fault else "")


def _greatest(number: float | None) -> float:
    """The key to sort by: the greatest value first, unknown ones last."""
    return float("inf") if number is None else -number


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
    if row.age_seconds is None:
        return Cell("-".rjust(width), "dim")
    length = width - 9
    share = row.age_seconds / (row.budget_seconds or UNTAUGHT_SECONDS)
    full = length if row.overdue else min(length, int(share * length))
    style = "bold red" if row.overdue else "yellow" if share >= 0.5 else "green"
    return Cell("━" * full + "─" * (length - full) + short(row.age_seconds).rjust(9), style)


def _open(row: Row) -> str:
    return short(row.open_seconds)


def _step(row: Row) -> str:
    return "-" if row.step is None else str(row.step)


def _cpu(row: Row) -> str:
    return "-" if row.cpu_ratio is None else f"{row.cpu_ratio:.0%}"


def _work(row: Row) -> str:
    return "-" if row.work_and_waiting is None else "{:.0%}/{:.0%}".format(*row.work_and_waiting)


def _most_work(row: Row) -> float:
    return _greatest(None if row.work_and_waiting is None else row.work_and_waiting[0])


def _stage(row: Row, _width: int) -> Cell:
    text = f"{row.stage}/{row.substage}" if row.substage else row.stage or "-"
    return Cell(text, "bold red" if row.at_fault else _STAGES.get(row.stage, ""))


def _class(row: Row, _width: int) -> Cell:
    return Cell(row.wait_class, "bold red" if row.at_fault else _CLASSES.get(row.wait_class, ""))


WORST = Column("", 1, _mark, _worst_first, left=True)
COLUMNS = (
    WORST,
    Column("JOB", 16, _plain(lambda row: row.job_id), lambda row: row.job_id, left=True, fit=True),
    Column("ROLE", 12, _plain(lambda row: row.role), lambda row: row.role, left=True, fit=True),
    Column("RANK", 5, _plain(lambda row: row.rank), lambda row: row.rank.zfill(9)),
    Column("NODE", 24, _plain(lambda row: row.node), lambda row: row.node, left=True, fit=True),
    Column("PID", 7, _plain(lambda row: str(row.pid or "-")), lambda row: row.pid or 0),
    Column("STAGE", 26, _stage, lambda row: row.stage, left=True),
    Column("OPEN", 8, _plain(_open), lambda row: _greatest(row.open_seconds)),
    Column("STEP", 7, _plain(_step), lambda row: -_greatest(row.step)),
    Column("STEPS", 8, _plain(_rate), lambda row: -_greatest(row.steps_per_second)),
    Column("PROGRESS", 28, _age, lambda row: _greatest(row.age_seconds), left=True),
    Column("CLASS", 7, _class, lambda row: row.wait_class, left=True),
    Column("CPU", 5, _plain(_cpu), lambda row: _greatest(row.cpu_ratio)),
    Column("WORK/WAIT", 9, _plain(_work), _most_work),
    Column("S", 1, _plain(lambda row: row.state), lambda row: row.state, left=True),
    Column(
        "WCHAN", 20, _plain(lambda row: row.wait_channel), lambda row: row.wait_channel, left=True
    ),
    Column("INSIDE", 44, _plain(lambda row: row.inside), lambda row: row.inside, left=True),
)
_LEAST = {"STAGE": 14, "PROGRESS": 15, "INSIDE": 16, "WCHAN": 12, "JOB": 8, "NODE": 10}
"""The least widths of columns."""
_DROPPED_FIRST = (
    *("S", "WCHAN", "PID", "INSIDE", "OPEN", "WORK/WAIT", "ROLE", "STEPS", "CPU", "NODE", "JOB"),
)
"""The columns that are dropped first on a narrow terminal."""
_CUT_FIRST = ("INSIDE", "WCHAN", "NODE", "JOB", "STAGE", "PROGRESS")

Layout = Sequence[tuple[Column, int]]
"""The columns that are shown, each with its width; one blank stands between two."""


def layout(rows: Sequence[Row], width: int) -> Layout:
    """The columns that fit."""
    widths = {column.title: _wanted(column, rows) for column in COLUMNS}
    if not any(row.node for row in rows):
        del widths["NODE"]
    if len({row.job_id for row in rows}) == 1:
        del widths["JOB"]
    for title in _DROPPED_FIRST:
        if (
            _total({name: min(wide, _LEAST.get(name, wide)) for name, wide in widths.items()})
            > width
        ):
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


def ordered(rows: Iterable[Row], column: Column) -> list[Row]:
    """The rows sorted by a column; equal ones stay in the order of jobs and ranks."""
    return sorted(rows, key=lambda row: (column.sort(row), row.key))


def matching(rows: Iterable[Row], words: str) -> list[Row]:
    """The rows that contain every word in their role, node, stage, class or similar; a number must
    equal a rank, pid or job."""
    wanted = words.casefold().split()
    return [row for row in rows if all(_has(row, word) for word in wanted)]


def _has(row: Row, word: str) -> bool:
    if word.isdecimal():
        return word in (row.rank, str(row.pid), row.job_id)
    texts = (row.job_id, row.role, row.node, row.stage, row.substage, row.wait_class, row.inside)
    fault = "fault" if row.at_fault else "overdue" if row.overdue else ""
    return any(word in text.casefold() for text in (*texts, "rank", fault))
