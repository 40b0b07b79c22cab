"""The judge acts once on each node of a job, within the limits, and not again after a restart."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.act.collector import ACTIONS, AGAIN_SECONDS, SPEC, ActCollector
from stagewatch.act.site import SiteOptions
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.state_file import StateFile
from stagewatch.judgement.collector import JudgeContext, JudgeOptions
from stagewatch.judgement.hardware import Proposal
from stagewatch.judgement.watch import Judged, Look
from tests.act.proposals import proposal


class Site:
    """Nodes that do as they are told, or refuse, or fail."""

    def __init__(self, *nodes: str) -> None:
        """`nodes`: those of the only partition; none: there is always another."""
        self.nodes = nodes
        self.drained: dict[str, Proposal] = {}
        self.taken_back: list[Proposal] = []
        self.objections: dict[str, str] = {}
        self.fails = False
        self.asked = 0
        self.before: Callable[[], None] = lambda: None
        """What happens before the checks."""
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens between the checks and the drain."""

    def taken(self, since: float) -> set[str]:
        return set(self.drained)

    def was_taken_out(self, proposal: Proposal) -> bool:
        known = [*self.drained.values(), *self.taken_back]
        return any((one.node, one.job_id) == (proposal.node, proposal.job_id) for one in known)

    def out(self, node: str) -> str:
        self.asked += 1
        self.before()
        return self.objections.get(node, "it is out already" if node in self.drained else "")

    def last(self, node: str) -> str:
        others = set(self.nodes) - self.drained.keys() - {node}
        return "" if others or not self.nodes else "it is the last of partition gpu"

    def comment(self, proposal: Proposal, case: str) -> None:
        self.drained[proposal.node] = proposal

    def drain(self, proposal: Proposal, case: str) -> None:
        if self.fails:
            raise SourceError("slurmctld does not answer")
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.drained[proposal.node] = proposal

    def undo(self, node: str) -> list[str]:
        self.taken_back.append(self.drained.pop(node))
        return [node]

    def ours(self) -> list[str]:
        return sorted(self.drained)


class Scene:
    def __init__(self, directory: Path, site: Site | None = None) -> None:
        self.directory = directory
        self.site = site or Site()
        self.now = proposal().time
        self.context = JudgeContext(JudgeOptions(case_dir=directory, act="drain"))
        self.restart()

    def restart(self) -> None:
        state = StateFile(self.directory / "acted.json", make_directory=True)
        options = SiteOptions(nodes_per_hour=2)
        self.collector = ActCollector(self.context, self.site, options, state, lambda: self.now)

    def look(self, *made: Proposal, age: float = 0.0) -> None:
        job = Judged([], deque(), made, self.directory / "case.json.gz")
        self.context.latest = Look(self.now - age, {("c", "540"): job}, {})
        self.collector.collect()

    def count(self, result: str) -> float | None:
        return self.collector.collect().value(ACTIONS, self.context.options.act, result)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_node_is_drained_once_though_it_is_taken_back_and_the_judge_restarts(
    scene: Scene,
) -> None:
    scene.look(proposal("n1"))
    assert scene.site.drained.keys() == {"n1"}
    scene.site.undo("n1")
    scene.look(proposal("n1"))
    scene.restart()
    scene.look(proposal("n1"))
    assert scene.site.drained == {}
    (key,) = json.loads((scene.directory / "acted.json").read_text())["acted"]
    assert key.split("\0") == ["c", "540", "n1"]


def test_nodes_that_were_taken_back_count_for_the_hour(scene: Scene) -> None:
    for node in ("n1", "n2"):
        scene.look(proposal(node))
        scene.site.undo(node)
    scene.look(proposal("n3"))
    assert scene.site.drained == {}
    assert scene.count("refused") == 1
    scene.now += 3600
    scene.look(proposal("n3", since=scene.now, time=scene.now, until=scene.now + 3600))
    assert scene.site.drained.keys() == {"n3"}


def test_what_is_only_likely_or_of_an_old_look_is_left_alone(scene: Scene) -> None:
    scene.look(proposal("n1", confidence="likely"))
    scene.look(proposal("n2"), age=120.0)
    assert scene.site.drained == {}
    scene.look(proposal("n1", confidence="likely"), proposal("n1", rank=6))  # of another GPU of it
    assert scene.site.drained.keys() == {"n1"}


def test_two_judges_drain_a_node_once_though_it_is_taken_back(tmp_path: Path) -> None:
    site = Site()
    pair = [Scene(tmp_path / name, site) for name in ("one", "other")]
    for scene in pair:
        scene.look(proposal("n1"))
    assert [scene.count("done") for scene in pair] == [1, 0]
    assert [scene.count("refused") for scene in pair] == [0, 0]
    site.undo("n1")
    later = Scene(tmp_path / "later", site)
    for scene in (*pair, later):
        scene.now += AGAIN_SECONDS
        scene.look(proposal("n1"))
    assert site.drained == {}
    later.look(proposal("n1", job_id="541"))
    assert site.drained.keys() == {"n1"}


def test_a_judge_notes_at_once_that_another_has_drained_the_node_at_the_same_moment(
    scene: Scene,
) -> None:
    scene.site.before = lambda: scene.site.drained.update(n1=proposal("n1"))
    scene.look(proposal("n1"))
    assert (scene.directory / "acted.json").exists()
    assert [scene.count(result) for result in ("done", "refused", "failed")] == [0, 0, 0]


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n2", "n3", "n4", "n5")])
def test_limits_hold_where_two_judges_act_at_the_same_moment(
    tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    """Of a partition of two nodes one stays, and of five no more than two are taken out."""
    site = Site(*nodes)
    one, other = (Scene(tmp_path / name, site) for name in ("one", "other"))
    if len(nodes) > 2:
        other.look(proposal("n3"))
    site.meanwhile = lambda: other.look(proposal("n2"))
    one.look(proposal("n1"))
    assert len(site.drained) == min(2, len(nodes) - 1)
    assert one.count("refused") == 1


def test_a_limit_is_told_once_and_tried_again_after_a_minute(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.site.objections["n1"] = "it is the last of partition gpu that takes jobs"
    for _ in range(3):
        scene.look(proposal("n1"))
    assert (scene.site.asked, scene.count("refused")) == (1, 1)
    scene.now += AGAIN_SECONDS
    scene.look(proposal("n1"))
    assert scene.site.asked == 2
    assert caplog.text.count("the last of partition") == 1
    scene.site.objections.clear()
    scene.now += AGAIN_SECONDS
    scene.look(proposal("n1"))
    assert scene.site.drained.keys() == {"n1"}
    assert scene.count("done") == 1


def test_a_site_that_fails_is_asked_again(scene: Scene) -> None:
    scene.site.fails = True
    scene.look(proposal("n1"))
    assert scene.count("failed") == 1
    scene.site.fails = False
    scene.now += AGAIN_SECONDS
    scene.look(proposal("n1"))
    assert scene.count("done") == 1


def test_by_default_nothing_is_done(tmp_path: Path) -> None:
    settings = {item.key: item.default for item in SPEC.settings()}
    context = JudgeContext(JudgeOptions(case_dir=tmp_path))
    assert context.options.act == "propose"
    with pytest.raises(NoData):
        SPEC.make(settings, context).collect()
    assert not list(tmp_path.iterdir())
