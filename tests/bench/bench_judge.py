"""One job of 65,536 ranks that hangs: from the series of its ranks to the verdict.

With `--below`, of 8,192 ranks, all programs are inside of the same collective, and each NCCL proxy
waits for bytes of the rank before, but for one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from stagewatch.judgement.from_prometheus import JobSeries, moment
from stagewatch.judgement.limits import Shown
from stagewatch.judgement.memory import Course, Moment
from tests.bench.table import row

RANKS, RANKS_BELOW = 65_536, 8_192
BUDGET_SECONDS = 3.0


def series(ranks: int, *, below: bool = False) -> JobSeries:
    """All ranks are in an all-reduce of the world, after those of their groups, but for one."""
    job = JobSeries()
    job.shown = {"train": {"train": Shown(9 * ranks, 3.0, 4.0, 4.0)}}
    for rank in range(ranks):
        who = {"cluster": "c", "node": f"n{rank // 8}", "job_id": "1", "role": "train"}
        who["rank"] = str(rank)
        odd = rank == 4711
        late = odd and not below

        def add(metric: str, value: float, who: dict[str, str] = who, **labels: str) -> None:
            job.by[metric].append(({**who, **labels}, value))

        add("rl_rank_up", 1)
        add("rl_rank_info", 1, pid=str(rank), world_size=str(ranks), uuid=f"GPU-{rank}")
        add("rl_rank_progress_age_seconds", 90.0)
        add("rl_rank_started_timestamp_seconds", 1.7e9)
        add("rl_rank_stage_open_seconds", 90.0, stage="train", substage="")
        add("rl_rank_wait_class", 1, **{"class": "parked" if late else "spin"})
        add("rl_rank_step", 7)
        add("rl_rank_step_age_seconds", 90.0)
        for group, size in (
            ("world", ranks),
            (f"tp:{rank // 8}", 8),
            (f"pp:{rank % 64}", ranks // 64),
            (f"dp:{rank % 8}", ranks // 8),
        ):
            add("rl_rank_collective_seq", 1000 - (late and group == "world"), group=group)
            add("rl_rank_group_size", size, group=group)
        if not late:
            inside = {"group": "world", "op": "all_reduce", "peer": ""}
            add("rl_rank_collective_inside_seconds", 88.0, **inside)
            add("rl_rank_collective_elements", 4096, group="world")
        for group in ("world", *(f"{number}:{rank // 8}" for number in range(7 * below))):
            mine = {"communicator": group, "name": group, "op": "all_reduce", "bytes": "4096"}
            size, state = (ranks, "begun") if group == "world" else (8, "idle")
            mine |= {"member": str(rank % size), "members": str(size), "state": state}
            add("rl_rank_nccl_operation", 1000, witness="plugin", **mine) if below else None
        if below and not odd:
            peer = {"peer": str((rank - 1) % ranks), "waits": "receive", "network": "mlx5_2"}
            add("rl_rank_nccl_wait_info", 1, communicator="world", **peer)
    return job


def main(arguments: Sequence[str] = ()) -> None:
    """Judge, and print how long that took."""
    parser = argparse.ArgumentParser(prog="judge", description=__doc__)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--below", action="store_true")
    chosen = parser.parse_args(arguments)
    ranks = chosen.ranks or (RANKS_BELOW if chosen.below else RANKS)
    job = series(ranks, below=chosen.below)
    began = time.process_time()
    now: Moment = moment("1", job, time.time())
    made = time.process_time()
    (state,) = Course().look(now)
    judged = time.process_time()
    named = [charge.rank.rank for charge in state.verdict.charges]
    if named != [4711]:
        raise SystemExit(f"it names {named}")
    row(f"facts of {ranks} ranks from their series", made - began, "s")
    row("verdict on them", judged - made, "s", BUDGET_SECONDS)


if __name__ == "__main__":
    main()
