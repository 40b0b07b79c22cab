"""Where the step went, from files of `stagewatch trace`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.trace.tracks import Instant, Slice, Trace
from stagewatch.whatif.losses import Account, Cause, account
from stagewatch.whatif.recorded import read_recorded
from stagewatch.whatif.replay import Replay

MS = 1000
RANKS = 4


def written(
    file: Path, *, slow: float = 1.0, data: int = 0, checkpoint: int = 0, steps: int = 10
) -> Path:
    """A trace of ranks that compute 100 ms a step and then meet; rank 1 is `slow` times as slow,
    rank 0 waits for `data` and writes a checkpoint for so many ms."""

    def slices(rank: int) -> Iterator[Slice | Instant]:
        work = round(100 * slow) if rank == 1 else 100
        stages = [("train", work)]
        if rank == 0:
            stages = [("other/dataloader", data), *stages, ("checkpoint", checkpoint)]
        met = 0
        for step in range(steps):
            at, met = met, met + max(data + checkpoint + 100, round(100 * slow)) + 5
            for name, lasts in stages:
                if lasts:
                    end = at + lasts
                    yield Slice("training thread", at * MS, end * MS, name, {"step": step})
                    at = end
            yield Instant("training thread", at * MS, f"step {step}")
            sequence = {"sequence": step}
            yield Slice("collectives world", at * MS, met * MS, "all_reduce", sequence)

    with file.open("w") as stream:
        trace = Trace(stream)
        for rank in range(RANKS):
            trace.process(f"train/{rank} on n1", slices(rank))
        trace.close({"job_id": "7"})
    return file


def accounted(file: Path) -> Account:
    return account(Replay(read_recorded(file)))


def lost(made: Account) -> dict[Cause, float]:
    return {loss.cause: round(loss.share, 2) for loss in made.losses if loss.share > 0.005}


def test_a_slow_rank_is_named_and_its_peers_waits_are_not_the_network(tmp_path: Path) -> None:
    made = accounted(written(tmp_path / "t.json", slow=2.0))
    assert [(rank, round(times, 1)) for rank, times in made.slow] == [(1, 2.0)]
    assert lost(made) == {Cause.SLOW_RANK: pytest.approx(100 / 205, abs=0.01)}


def test_waiting_for_data_and_a_checkpoint_are_told_apart(tmp_path: Path) -> None:
    made = accounted(written(tmp_path / "t.json", data=50, checkpoint=20))
    assert made.slow == ()
    assert lost(made) == {
        Cause.DATA_WAIT: pytest.approx(50 / 175, abs=0.01),
        Cause.CHECKPOINT: pytest.approx(20 / 175, abs=0.01),
    }


def test_a_healthy_job_loses_nothing(tmp_path: Path) -> None:
    made = accounted(written(tmp_path / "t.json"))
    assert (made.slow, lost(made), made.steps) == ((), {}, 8)


def test_ranks_that_send_need_the_stages_of_the_pipeline(tmp_path: Path) -> None:
    file = written(tmp_path / "t.json")
    file.write_text(
        file.read_text().replace('"all_reduce"', '"send"').replace('"sequence"', '"peer"')
    )
    with pytest.raises(ConfigError, match="--pipeline"):
        read_recorded(file)


@pytest.mark.parametrize("content", ["", "[]", '{"traceEvents": 3}', '{"traceEvents": [{}]}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="not a file of stagewatch trace"):
        read_recorded(file)


def test_too_few_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StagewatchError, match="no whole step"):
        read_recorded(written(tmp_path / "t.json", steps=2))


RANK = """
import sys, time, stagewatch
stagewatch.init(role="train", job_id=7, rank=int(sys.argv[1]), world_size=2, directory=sys.argv[2])
for step in range(8):
    with stagewatch.stage("train", step=step):
        time.sleep(0.01)
        with stagewatch.collective("world", op="all_reduce"):
            time.sleep(0.002)
print("done", flush=True)
sys.stdin.read()
"""


def test_real_records_of_real_ranks_are_accounted_for(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    stagewatch = [sys.executable, "-m", "stagewatch"]
    with ExitStack() as stack:
        for rank in ("0", "1"):
            command = [sys.executable, "-c", RANK, rank, str(tmp_path)]
            pipe = subprocess.PIPE
            process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            assert process.stdout and process.stdout.readline() == b"done\n"
        subprocess.run(
            [*stagewatch, "trace", "--job", "7", "-o", str(trace), "--record-dir", str(tmp_path)],
            check=True,
        )
    told = subprocess.run(
        [*stagewatch, "whatif", str(trace), "--json", "--price", "2", "--hours", "10"],
        check=True,
        capture_output=True,
        text=True,
    )
    made = json.loads(told.stdout)
    assert (made["steps"], made["ranks"]) == (6, 2)
    assert {loss["cause"] for loss in made["losses"]} == {cause.value for cause in Cause}
    assert all(loss["money"] == pytest.approx(2 * loss["gpu_hours"]) for loss in made["losses"])
