"""The judge's collector that comments on nodes, or drains them, as `[judge] act` says."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from stagewatch.act.site import HOUR_SECONDS, IsOut, Refused, Site, SiteOptions, act, site
from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Samples, counter
from stagewatch.core.state_file import StateFile, past, text
from stagewatch.core.words import printable
from stagewatch.judgement.collector import JudgeContext
from stagewatch.judgement.hardware import SURE, Proposal
from stagewatch.judgement.watch import Look

log = logging.getLogger(__name__)

FRESH_SECONDS = 60.0
"""How old a look may be."""
AGAIN_SECONDS = 60.0
"""Seconds until something that a limit prevented is tried again."""
REMEMBERED_SECONDS = 7 * 86_400.0
MOST_REMEMBERED = 4096

ACTIONS = counter(
    "rl_judge_actions_total",
    "Nodes that the judge has marked or taken out: done, refused by a limit, or failed.",
    ("action", "result"),
)


def fresh(context: JudgeContext, now: float) -> Look | None:
    """The judge's latest look, if it is recent and complete."""
    look = context.latest
    return look if look and not look.blind and abs(now - look.time) < FRESH_SECONDS else None


class ActCollector(Collector):
    """Acts once for each node of a job, even after restarts and beside another judge.

    It reads at the node what has been done before."""

    def __init__(
        self,
        context: JudgeContext,
        place: Site | None,
        options: SiteOptions,
        state: StateFile,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`place`: `None` if proposals are not acted on."""
        self._context = context
        self._place = place
        self._options = options
        self._state = state
        self._clock = clock
        self._acted: dict[str, float] = state.load(_read) or {} if place else {}
        """When, by cluster, job and node."""
        self._tried: dict[str, float] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def collect(self) -> Samples:
        if self._place is None:
            raise NoData("[judge] act = propose: proposals stand in the cases")
        now = self._clock()
        look = fresh(self._context, now)
        for job in look.jobs.values() if look else ():
            for proposal in job.proposals:
                if proposal.confidence == SURE:
                    self._once(self._place, proposal, job.case.name if job.case else "", now)
        out = Samples()
        for result in ("done", "refused", "failed"):
            how = self._context.options.act
            out.add(ACTIONS, self._counts[how, result], how, result)
        return out

    def _once(self, place: Site, proposal: Proposal, case: str, now: float) -> None:
        key = "\0".join((proposal.cluster, proposal.job_id, proposal.node))
        if key in self._acted or now - self._tried.get(key, 0.0) < AGAIN_SECONDS:
            return
        how, again = self._context.options.act, key in self._tried
        self._tried = {one: at for one, at in self._tried.items() if now - at < HOUR_SECONDS}
        self._tried[key] = now
        lately = [one for one, at in self._acted.items() if now - at < HOUR_SECONDS]
        also = {one.rpartition("\0")[2] for one in lately}
        try:
            done = self._act(place, proposal, case, now, also)
        except (Refused, SourceError) as error:
            result = "refused" if isinstance(error, Refused) else "failed"
            if not again:
                self._counts[how, result] += 1
                log.warning("%s %s: %s", how, result, printable(str(error)))
            return
        if done:
            self._counts[how, "done"] += 1
            log.warning("%s of %s is done: %s", how, printable(proposal.node), proposal.why)
        kept = {one: at for one, at in self._acted.items() if now - at < REMEMBERED_SECONDS}
        self._acted = dict([*kept.items(), (key, now)][-MOST_REMEMBERED:])
        self._state.save({"acted": self._acted})

    def _act(
        self, place: Site, proposal: Proposal, case: str, now: float, also: Collection[str]
    ) -> bool:
        """Whether this judge has acted: another may have done so, before or at the same moment."""
        how = self._context.options.act
        if how == "drain" and place.was_taken_out(proposal):
            return False
        try:
            act(place, how, proposal, case, self._options, now, also=also)
        except IsOut:
            if not place.was_taken_out(proposal):
                raise
            return False
        return True


def _read(content: Any) -> dict[str, float]:
    return {text(key): past(at) for key, at in content["acted"].items()}


def _build(options: SiteOptions, context: JudgeContext) -> ActCollector:
    place = None if context.options.act == "propose" else site(options)
    state = StateFile(
        context.options.case_dir / "acted.json",
        lost="a node that somebody has taken back may be taken out again",
        make_directory=True,
    )
    return ActCollector(context, place, options, state)


SPEC = CollectorSpec(
    name="act",
    help="marks or drains nodes with broken hardware under a rank at fault, as act says",
    interval=5,
    options=SiteOptions,
    build=_build,
)
