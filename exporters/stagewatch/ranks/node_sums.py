"""Sums over all ranks of a role on a node, for the rules: one series in place of eight.

Ranks that ended without closing their record are still there; they count only where stated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from stagewatch.core.exposition import Samples, gauge
from stagewatch.ranks.model import RANK_LABELS
from stagewatch.ranks.records import Life, RankRecord

NEW_SECONDS = 1800.0
"""How long a rank without any mark counts as starting, and not as idle."""

_ROLE = ("job_id", "role")
_STAGE = (*_ROLE, "stage")

GONE = gauge(
    "rl_rank_gone",
    "1 for a rank whose process is gone without having closed its record; absent otherwise.",
    RANK_LABELS,
)
LIVE = gauge("rl_ranks_live", "Ranks of the role that live on this node; absent for none.", _ROLE)
IN_STAGE = gauge(
    "rl_stage_ranks",
    "Live ranks of the role on this node by their innermost open stage; one that began within half "
    "an hour and has marked nothing is in `init`. 0 in stages that they were in before.",
    _STAGE,
)
EARLIEST = gauge(
    "rl_ranks_started_timestamp_seconds",
    "When the first record of the role's live ranks on this node was begun, as Unix time.",
    _ROLE,
)
NEWEST_STEP = gauge(
    "rl_newest_step", "Newest step of the role's ranks on this node, dead ones too.", _ROLE
)
SHORTEST_AGE = gauge(
    "rl_progress_age_shortest_seconds",
    "The least rl_rank_progress_age_seconds of the role's live ranks on this node.",
    _ROLE,
)
LONGEST_AGE = gauge(
    "rl_progress_age_longest_seconds",
    "The greatest rl_rank_progress_age_seconds of the role's ranks on this node, dead ones too.",
    _ROLE,
)


def add_node_sums(out: Samples, records: Iterable[RankRecord], now: float, clock: float) -> None:
    """Add the sums over all ranks of a node.

    `now` is a time of the clock that counts suspend, `clock` Unix time.
    """
    roles: defaultdict[tuple[str, str], list[RankRecord]] = defaultdict(list)
    for record in records:
        roles[record.job_id, record.role].append(record)
        out.add(
            GONE,
            None if record.life is Life.ALIVE else 1,
            *(record.job_id, record.role, record.rank),
        )
    for role, ranks in roles.items():
        live = [record for record in ranks if record.life is Life.ALIVE]
        out.add(LIVE, len(live) or None, *role)
        for stage, count in _stages(ranks, live, clock).items():
            out.add(IN_STAGE, count, *role, stage)
        out.add(EARLIEST, min((record.created for record in live), default=None), *role)
        steps = [lane.step for one in ranks if (lane := one.training) and lane.step is not None]
        out.add(NEWEST_STEP, max(steps, default=None), *role)
        for metric, some, which in ((SHORTEST_AGE, live, min), (LONGEST_AGE, ranks, max)):
            ages = [max(0.0, now - one.progress) for one in some if one.progress]
            out.add(metric, which(ages, default=None), *role)


def _stages(
    ranks: Iterable[RankRecord], live: Iterable[RankRecord], clock: float
) -> Mapping[str, int]:
    """The number of live ranks in each stage.

    Stages that ranks were in before have 0: a restarted Prometheus would otherwise show their old
    series for minutes beside the present ones.
    """
    stages = {"idle": 0, "init": 0}
    for record in ranks:
        stages |= dict.fromkeys(record.totals, 0)
    for record in live:
        begins = record.training is None and record.created > clock - NEW_SECONDS
        stage = record.open.stage if record.open else "init" if begins else "idle"
        stages[stage] = stages.get(stage, 0) + 1
    return stages
