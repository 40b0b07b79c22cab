"""Public incidents in which all ranks were inside the same collective, played by real programs: the
agent's looks name who NCCL shows to be waited for, and without the plugin nobody is named."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.collector import NCCL, TRANSFER, IncidentsCollector
from stagewatch.incidents.files import IncidentDirectory, read, with_evidence
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.from_node import observe
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.nccl.files import NcclFiles
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.stacks import StackTaker
from tests.deploy.engine import need
from tests.hangbench.meeting import Board
from tests.hangbench.shape import BARE, DIRECTORY, PROGRAMS, SHAPE, Shape, find_programs
from tests.running import clean_environ
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("nccl_incidents")

ROOT = Path(__file__).parents[2]
PROGRAM = "nccl_ring.py"
EVIDENCE = {"nccl_card_down": "no_bytes", "nccl_gpu_never_begins": "not_begun"}
"""HangBench plays all cases."""


def cases() -> list[Shape]:
    return [one for one in find_programs() if one.name in EVIDENCE]


class Jobs:
    """All of them at once, and what the collector of one node has seen of them."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._children = directory, Children()
        self._proc = Procfs()
        self.records = RecordDirectory(directory / "ranks", self._proc)
        self.ranks = RankDirectory(self.records, fresh_for=0.0)
        (directory / "ranks").mkdir()
        self.collector = IncidentsCollector(
            self.ranks,
            self._proc,
            IncidentDirectory(directory / "incidents"),
            StackTaker(),
            nccl=NcclFiles(directory / "ranks", self._proc),
        )

    def start(self, shape: Shape) -> None:
        """Play a case, whose fault comes after eight steps."""
        job = self._directory / shape.name
        job.mkdir()
        Board.create(job, 0)
        environ = {DIRECTORY: str(job), SHAPE: str(shape.file), BARE: "False"}
        environ |= {"WORLD_SIZE": str(shape.world), "PYTHONPATH": f"{ROOT}:{ROOT / 'exporters'}"}
        environ |= {"STAGEWATCH_DIR": str(self._directory / "ranks"), "NCCL_IB_HCA": "mlx5_2"}
        command = [sys.executable, str(PROGRAMS / PROGRAM), *shape.arguments, "--at", "8"]
        for rank in range(shape.world):
            mine = clean_environ(environ | {"RANK": str(rank)})
            self._children.start(command, log=job / f"{rank}.log", environ=mine)

    def look(self) -> Samples | None:
        """What the collector shows, a moment after the last look."""
        time.sleep(0.5)
        try:
            return self.collector.collect()
        except NoData:
            return None

    def facts(self) -> list[RankFacts]:
        """Of all ranks, with what incidents hold of them."""
        facts = observe(self.ranks, self._proc, looks=2, pause=0.3)
        kept = read(self._directory / "incidents", {fact.job_id for fact in facts})
        return with_evidence(facts, kept, time.time())

    def close(self) -> None:
        """End them."""
        self.collector.close()
        self._children.stop(patience=0.0)
        self.records.close()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Samples, list[RankFacts]]]:
    need("cc")
    jobs = Jobs(tmp_path_factory.mktemp("incidents"))
    try:
        for shape in cases():
            jobs.start(shape)

        def shown() -> Samples | None:
            samples = jobs.look()
            told = {labels[0] for labels in samples.families.get(NCCL, ())} if samples else set()
            kept = {
                fact.job_id for fact in jobs.facts() if fact.stack.problem or fact.stack.threads
            }
            return samples if told == set(EVIDENCE) and len(kept) == len(EVIDENCE) else None

        samples = wait_for(shown, "all jobs are looked at", limit=240.0)
        assert samples is not None
        yield samples, jobs.facts()
    finally:
        jobs.close()


def verdict_on(job_id: str, facts: list[RankFacts]) -> Verdict:
    (found,) = judge([fact for fact in facts if fact.job_id == job_id])
    return found


@pytest.mark.parametrize("name", EVIDENCE)
def test_the_culprit_is_named_with_the_plugin_and_nobody_without_its_witness(
    name: str, seen: tuple[Samples, list[RankFacts]]
) -> None:
    (case,) = (one for one in cases() if one.name == name)
    found = verdict_on(name, seen[1])
    assert {charge.rank.rank for charge in found.charges} in case.expect.sets, sentence(found)
    assert {(one.evidence, one.confidence) for one in found.charges} == {(EVIDENCE[name], "sure")}
    blind = [dataclasses.replace(fact, nccl=()) for fact in seen[1]]
    assert verdict_on(name, blind).evidence == "group_only"
    assert not verdict_on(name, blind).charges


def test_the_device_that_a_proxy_waits_for_is_shown(seen: tuple[Samples, list[RankFacts]]) -> None:
    samples, facts = seen
    told = sentence(verdict_on("nccl_card_down", facts))
    assert "rank 0's proxy waits for its bytes over mlx5_2" in told
    of = {labels[0] for labels in samples.families[TRANSFER] if labels[-1] == "mlx5_2"}
    assert "nccl_card_down" in of
