"""Lays out the ranks of a node as a table, with a sentence for each role of a job under it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stagewatch.core.terminal import aligned, bold, red
from stagewatch.core.words import duration
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.words import sleeps_in

MAX_CHANNEL = 16

_COLUMNS = (
    "JOB", "ROLE", "RANK", "PID", "STAGE", "OPEN", "STEP", "PROGRESS", "S", "WCHAN", "CPU", "CLASS",
)  # fmt: skip
_RIGHT = {"RANK", "PID", "OPEN", "STEP", "PROGRESS", "CPU"}
_LEGEND = "! no progress for longer than the stage may take"
_COMPILED = re.compile(r"\.(constprop|isra|part|cold|llvm)\b.*")
"""The suffixes that compilers add to the names of kernel functions."""


def table(
    facts: Sequence[RankFacts],
    verdicts: Sequence[Verdict],
    *,
    colour: bool,
    width: int | None = None,
) -> str:
    """The whole text, fitted to `width` columns as far as narrower gaps allow."""
    accused = {_key(rank) for verdict in verdicts for rank in verdict.culprits}
    lines = []
    for number, line in enumerate(_lines([_row(fact) for fact in facts], width)):
        if number == 0:
            lines.append(bold(line, colour))
        else:
            lines.append(red(line, colour and _key(facts[number - 1]) in accused))
    lines += ["", _LEGEND] if any(fact.overdue for fact in facts) else []
    lines.append("")
    for verdict in verdicts:
        wrong = colour and verdict.wrong
        lines.append(bold(red(sentence(verdict), wrong), wrong))
    return "\n".join(lines)


def short_channel(channel: str) -> str:
    """A wait channel in at most `MAX_CHANNEL` characters.

    First the suffix of compilers is removed, then the kind of wait replaces the name, then the name
    is cut.
    """
    name = _COMPILED.sub("", channel)
    if len(name) > MAX_CHANNEL:
        name = sleeps_in(name)
    return name if len(name) <= MAX_CHANNEL else f"{name[: MAX_CHANNEL - 1]}~"


def _lines(rows: list[tuple[str, ...]], width: int | None) -> list[str]:
    lines = aligned([_COLUMNS, *rows], _RIGHT)
    if width is None or max(map(len, lines)) <= width:
        return lines
    return aligned([_COLUMNS, *rows], _RIGHT, " ")


def _row(fact: RankFacts) -> tuple[str, ...]:
    stage = fact.stage or "-"
    return (
        fact.job_id,
        fact.role,
        str(fact.rank),
        str(fact.pid),
        f"{stage}/{fact.substage}" if fact.substage else stage,
        _age(fact.stage_open_seconds),
        "-" if fact.step is None else str(fact.step),
        _age(fact.progress_age_seconds) + ("!" if fact.overdue else ""),
        fact.state,
        short_channel(fact.wait_channel) or "-",
        "-" if fact.cpu_ratio is None else f"{fact.cpu_ratio:.0%}",
        fact.wait_class.value,
    )


def _age(seconds: float | None) -> str:
    """One word, so that a program may split a row at its blanks."""
    return "-" if seconds is None else duration(seconds).replace(" ", "")


def _key(fact: RankFacts) -> tuple[str, str, int]:
    return fact.job_id, fact.role, fact.rank
