"""Twenty days of twelve nodes by hand: one is named again and again, others meet what happens."""

from __future__ import annotations

import time

from tests.report.filled import Past, Value

DAY = 86400.0
STEP = 60.0
END = time.time() // 300 * 300
START = END - 20 * DAY
CLUSTER = "east"
NODES = [f"n{number:02}" for number in range(12)]
LEMON = "n03"
NAMED = [START + day * DAY + 3600 for day in (2, 4, 6, 9, 11, 13, 15, 18)]
"""When the judge names the lemon's rank 3, each for ten minutes."""


def within(*spans: tuple[float, float]) -> Value:
    return lambda when: 1.0 if any(start <= when < end for start, end in spans) else None


def fleet(hostile: str = "") -> list[Past]:
    """Twelve nodes of 8 GPUs, all in one job, and what befalls them."""
    known = Past(START, END, DAY / 4)
    there = Past(START, END, 4 * STEP)
    past = Past(START, END, STEP)
    of = {"cluster": CLUSTER}
    for node in NODES:
        there.add("slurm_job_node", 1.0, **of, node=node, job_id="540", gpus="0-7")
        there.add("up", 1.0, **of, node=node, job="stagewatch")
        for gpu in range(8):
            uuid = f"GPU-{node}-{gpu}"
            known.add("gpu_info", 1.0, **of, node=node, gpu=gpu, uuid=uuid, mig="")
    named = within(*((when, when + 600) for when in NAMED))
    role = {**of, "job_id": "540", "role": "train"}
    rank = {**role, "rank": "3", "node": LEMON}
    past.add("job:rl_stall:culprit", named, **rank, evidence="not_entered", confidence="sure")
    past.add("rl_job_stalled_gpus", named, **role)
    past.series["rl_job_stalled_gpus"] = [
        line.replace("} 1.0 ", "} 96.0 ") for line in past.series["rl_job_stalled_gpus"]
    ]
    past.add("rl_rank_info", 1.0, **rank, uuid=f"GPU-{LEMON}-3", pid="77")
    together = within((START + 5 * DAY, START + 5 * DAY + 600))
    for node in ("n05", "n06"):  # the same code, at fault on both
        both = {**role, "job_id": "541", "rank": node[-1], "node": node}
        past.add("job:rl_stall:culprit", together, **both, evidence="same_place")
    slow = {**rank, "node": "n07", "alertname": "SlowRank", "alertstate": "firing"}
    past.add("ALERTS", within((START + 7 * DAY, START + 7 * DAY + 3600)), **slow)
    out = {**of, "user": "root", "reason": f"why{hostile}"}
    down = within((START + 8 * DAY, START + 8 * DAY + 4 * 3600))
    past.add(
        "slurm_node_unavailable_info", down, **out, node="n08", kind="down", reason_class="other"
    )
    past.add(
        "slurm_node_unavailable_info", down, **out, node="n09", kind="drain",
        reason_class="maintenance",
    )  # fmt: skip
    when = START + 12 * DAY
    past.add(
        "gpu_xid_last_timestamp_seconds", lambda at: when if at >= when else START - DAY,
        **of, node="n10", gpu="2", uuid="GPU-n10-2", xid="79", severity="critical",
    )  # fmt: skip
    return [known, there, past]
