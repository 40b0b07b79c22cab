"""miles' timer, and the data of a training rank, as its training actors use them."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import stagewatch
from tests.client.hooking import completed, open_frame, record
from tests.client.jobs.bare import bare_packages, stand_ins


def main() -> None:
    """A step of training, and data of a rank and of its peer; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("miles")
    bare_packages("miles", "miles.backends", "sglang")
    stand_ins("httpx")
    from miles.backends.training_utils import data, parallel
    from miles.utils import data as handed
    from miles.utils.timer import Timer, inverse_timer, timer

    directory = Path(os.environ["STAGEWATCH_DIR"])
    seen: list[Any] = []

    @timer
    def update_weights() -> None:
        seen.append(open_frame(directory))

    Timer().start("train_wait")
    with inverse_timer("train_wait"), timer("train"):
        with timer("ref_log_probs"):
            seen.append(open_frame(directory))
        with timer("actor_train"):
            seen.append(open_frame(directory))
    update_weights()

    one = parallel.GroupInfo(rank=0, size=1, group=None)
    second = parallel.GroupInfo(rank=1, size=2, group=None)
    handed.ray = SimpleNamespace(get=lambda inner: dict(inner))
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    inner = {
        "partition": [0, 2],
        "total_lengths": [100, 7, 50],
        "tokens": [[1], [2]],
        "loss_masks": [[1], [1]],
    }
    lengths = []
    for tensor_parallel in (one, second):
        groups = dict.fromkeys(("intra_dp", "intra_dp_cp", "cp", "pp", "ep", "etp"), one)
        parallel.set_parallel_state(parallel.ParallelState(tp=tensor_parallel, **groups))
        arguments = SimpleNamespace(qkv_format="thd")
        rank = data.get_rollout_data(arguments, [SimpleNamespace(inner=inner)])
        lengths.append(rank["total_lengths"])
    found = record(directory)
    report = {
        "seen": seen,
        "completed": completed(found),
        "timed": sorted(Timer().log_dict()),
        "lengths": lengths,
        "work": dict(found.work),
        "part": [found.role, found.rank, found.framework],
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
