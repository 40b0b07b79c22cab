"""Says why the judge decided as it did: judges the case in FILE again, and shows step by step
what it knew of each rank, who waits for whom, and which evidence counted.

A case is the state of one job at some moments.  The judge keeps one file for every verdict,
`stagewatch inspect --json` writes one case for every job, and http://JUDGE:9949/api/v1/jobs/ID
shows one.

  stagewatch explain /var/lib/stagewatch/cases/20261126T143000Z-540-9f8e7d6c.json.gz
  stagewatch inspect --json > f; stagewatch explain f
  curl -s http://JUDGE:9949/api/v1/jobs/540 | stagewatch explain - --svg 540.svg

If a job has more than a dozen ranks, similar ones share a line.  A ! marks ranks that are silent
for longer than their stage may take.
--svg draws the same for a browser: ranks that wait alike are one box, the rank at fault is red, and
a dashed arrow is an assumed wait.  The command needs no agent, no server and no privilege: it can
explain a case that somebody else has sent.

exit status:
  0  the case is explained, whatever the verdict
  1  the file cannot be read, or holds no case, or none of that job
  2  an option cannot be used
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.core.terminal import bold, colours, columns, red
from stagewatch.core.words import duration, printable
from stagewatch.inspect.reasons import reasons
from stagewatch.inspect.rows import rows
from stagewatch.judgement.case_file import CaseFile, read_any
from stagewatch.judgement.drawing.svg import svg
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.memory import State
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.wait_words import name, wait_sentence
from stagewatch.judgement.waits import Wait, key, waits_of

MOST_WAITS = 24
_ALIKE = 3
"""Up to so many waits that differ only in numbers are listed."""
_LONGEST = 1200
"""The most characters of a sentence: a job names its groups as it likes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `stagewatch explain` takes."""
    parser.add_argument(
        "file", metavar="FILE", help="the case, packed by gzip or not; - reads standard input"
    )
    parser.add_argument(
        "--job", default="", help="if FILE holds several cases, explain the one of this job"
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="also draw who waits for whom into this file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Explain a case; returns the exit status, which `--help` explains."""
    case = _chosen(read_any(arguments.file), arguments.job)
    if not case.moments:
        raise StagewatchError(f"the case of job {name(case.job_id)} holds no moment")
    states = sorted(case.states(), key=_weight)
    waits = waits_of([state.verdict for state in states])
    if arguments.svg:
        drawn = svg([state.verdict for state in states], waits)
        try:
            arguments.svg.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise StagewatchError(f"cannot write {arguments.svg}: {error.strerror}") from error
    print(text(case, states, waits, colour=colours(sys.stdout), width=columns(sys.stdout)))
    return 0


def _chosen(cases: Sequence[CaseFile], job: str) -> CaseFile:
    of_job = [case for case in cases if job in ("", case.job_id)]
    if of_job:
        return of_job[0]
    known = ", ".join(dict.fromkeys(name(case.job_id) for case in cases[:8]))
    of = f"no case of job {job}, but of {known}" if known else "no case: no job was in sight"
    raise StagewatchError(f"it holds {of}")


def _weight(state: State) -> tuple[bool, bool, str]:
    """Roles at fault come first."""
    verdict = state.verdict
    return not verdict.charges, not verdict.stalled, verdict.role


# ---- Text ---------------------------------------------------------------------------------------


def text(
    case: CaseFile,
    states: Sequence[State],
    waits: Sequence[Wait],
    *,
    colour: bool,
    width: int | None,
) -> str:
    """The explanation."""
    lines = [*_paragraph(_title(case), "", width), ""]
    charged = {key(rank) for state in states for rank in state.verdict.culprits}
    ranks = case.moments[-1].ranks
    lines.append(bold("THE RANKS", colour))
    for line, hot in rows(ranks, charged):
        lines.append(red(f"  {line}", colour and hot))
    if any(rank.overdue for rank in ranks):
        lines.append("  ! no progress for longer than the stage may take")
    lines += ["", bold("WHO WAITS FOR WHOM", colour)]
    for line in wait_sentences(waits, several=len(states) > 1) or [
        "no evidence shows that a rank waits for another"
    ]:
        lines += _paragraph(line, "  ", width)
    steps = reasons(case.moments[-1], states, case.limits)
    for state in states:
        verdict = state.verdict
        role = f": {name(verdict.role).upper()}" if len(states) > 1 else ""
        lines += ["", bold(f"THE DECISION{role}", colour)]
        for number, step in enumerate(steps[verdict.role], 1):
            lines += _paragraph(f"{number}. {step.question}  {step.answer}.", "  ", width)
            for ground in step.grounds:
                lines += _paragraph(f"- {ground}", "     ", width)
        lines += [red(line, colour and verdict.wrong) for line in _verdict(verdict, width)]
    if not states:
        lines += ["", "No rank of the job is in sight."]
    return "\n".join(lines)


def _title(case: CaseFile) -> str:
    """The title line: the job, the cluster and the moments."""
    cluster = f" of cluster {name(case.cluster)}" if case.cluster else ""
    moments, at = len(case.moments), case.moments[-1].time
    job = f"Job {name(case.job_id)}{cluster} as of {_utc(at)}"
    if moments == 1:
        return f"{job}, the only moment of the case; it does not show since when."
    after = duration(at - case.moments[0].time)
    return f"{job}, the last of {moments} moments, {after} after the first."


def _utc(seconds: float) -> str:
    try:
        return time.strftime("%F %T UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f}"


def wait_sentences(waits: Sequence[Wait], *, several: bool) -> list[str]:
    """The waits as sentences; of waits that differ only in numbers, the first few."""
    alike: dict[object, list[Wait]] = {}
    for wait in waits:
        kind = re.sub(r"\d+", "*", wait.group)
        what = wait.kind, wait.op, kind, wait.waiters[0].role, bool(wait.outsider)
        alike.setdefault(what, []).append(wait)
    lines = []
    for same in alike.values():
        shown = same if len(same) <= _ALIKE + 1 else same[:_ALIKE]
        lines += [wait_sentence(wait, roles=several) for wait in shown]
        if len(same) > len(shown):
            lines.append(f"... and {len(same) - len(shown)} more waits like these")
    if len(lines) > MOST_WAITS:
        lines = [*lines[:MOST_WAITS], f"... and {len(lines) - MOST_WAITS} more lines"]
    return lines


def _verdict(verdict: Verdict, width: int | None) -> Iterator[str]:
    whole = printable(sentence(verdict), _LONGEST)
    yield from _paragraph(f"=> {whole}", "  ", width)


def _paragraph(text: str, indent: str, width: int | None) -> list[str]:
    """A paragraph as lines for a terminal of that width; without a width, one line."""
    if width is None:
        return [f"{indent}{text}"]
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=f"{indent}   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
