"""How the Slurm agent is put together, for one cluster and for several."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.core.collector import Collector
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.agent import COMMAND, collector_specs
from stagewatch.slurm.context import SlurmOptions, api, exporter, slurm_context
from stagewatch.slurm.fleet import Fleet
from tests.golden import valid
from tests.waiting import wait_for


class Scripted(Collector):
    """Returns or raises what it is told to."""

    def __init__(self, *results: Samples | Exception) -> None:
        self.results = list(results)
        self.closed = False

    def collect(self) -> Samples:
        """The next one; the last for ever."""
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Remember."""
        self.closed = True


THING = Metric("slurm_thing", "gauge", "A thing.", ("kind",))


def thing(value: float) -> Samples:
    """One sample."""
    out = Samples()
    out.add(THING, value, "x")
    return out


def test_fleet_labels_each_cluster_and_drops_a_failing_one_after_a_while() -> None:
    """Two collections' grace, as the runner gives."""
    fleet = Fleet({"a": Scripted(thing(1)), "b": Scripted(thing(2), SourceError("gone"))})
    seen = []
    for _ in range(4):
        found = fleet.collect()
        (metric,) = found.families
        assert metric.labels == ("cluster", "kind")
        seen.append({labels[0] for labels in found.families[metric]})
        assert valid(found)
    fleet.close()
    assert seen == [{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a"}]


class Hanging(Collector):
    """Does not return until it is let."""

    def __init__(self) -> None:
        self.calls = 0
        self.leave = threading.Event()

    def collect(self) -> Samples:
        """Wait, then one sample."""
        self.calls += 1
        self.leave.wait(120)
        return thing(7)


def test_cluster_that_hangs_holds_up_no_other_and_is_asked_once() -> None:
    """Beyond any time-out: in a system call that does not return."""
    hanging = Hanging()
    fleet = Fleet({"a": Scripted(thing(1)), "b": hanging}, patience=0.05)
    for _ in range(3):
        (family,) = fleet.collect().families.values()
        assert [labels[0] for labels in family] == ["a"]
    assert hanging.calls == 1
    hanging.leave.set()
    wait_for(lambda: len(next(iter(fleet.collect().families.values()))) == 2, "b to be back")
    fleet.close()


def test_defect_in_one_cluster_is_told_as_it_is() -> None:
    """The runner logs it with its traceback."""
    fleet = Fleet({"a": Scripted(ZeroDivisionError("a defect"))})
    with pytest.raises(ZeroDivisionError):
        fleet.collect()


def test_fleet_fails_only_if_all_do_and_names_who() -> None:
    """Having nothing is not failing."""
    fleet = Fleet({"a": Scripted(NoData("none")), "b": Scripted(SourceError("no controller"))})
    with pytest.raises(SourceError, match="cluster b: no controller"):
        fleet.collect()
    nothing = Fleet({"a": Scripted(NoData("none"))})
    with pytest.raises(NoData):
        nothing.collect()
    for each in (fleet, nothing):
        each.close()
        assert all(member.collector.closed for member in each._members.values())  # type: ignore[attr-defined]


def test_every_collector_is_built_and_named_after_slurm(tmp_path: Path) -> None:
    """With one cluster and with several; only the steps are off unless enabled."""
    for clusters in ((), ("a", "b")):
        context = slurm_context(SlurmOptions(clusters=clusters, state_dir=tmp_path))
        for spec in collector_specs():
            defaults = {setting.key: setting.default for setting in spec.settings()}
            collector = spec.make(defaults, context)
            assert isinstance(collector, Collector)
            collector.close()
            assert spec.name.startswith("slurm_")
            assert spec.default is (spec.name != "slurm_steps")
    assert COMMAND.name == "slurm"
    assert set(COMMAND.routes(context)) == {"/sd", "/sd/stagewatch"}


@pytest.mark.parametrize("command", ["slurm", "check-config"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--api=rest"], "one cluster each"),
        (["--builtin-url=http://c:1"], "one cluster each"),
        # sstat has no -M, and job ids of two clusters are often the same.
        (["--collector.slurm-steps.enabled"], "sstat can ask the local cluster only"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    command: str, flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several clusters not everybody can be asked; checking the options says so already."""
    agent = ["--agent=slurm"] if command == "check-config" else []
    argv = [command, *agent, "--clusters=a,b", f"--state-dir={tmp_path}", *flags]
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("value", ["", "x", "x:0", "x:99999", "9x:1", "x:y"])
def test_exporter_must_have_a_name_and_a_port(value: str) -> None:
    """NAME:PORT."""
    with pytest.raises(ValueError):
        exporter(value)


def test_options_take_what_they_say() -> None:
    """And show it as it would be written."""
    assert str(exporter("node_exporter:9100")) == "node_exporter:9100"
    assert [api(value) for value in ("text", "json", "rest")] == ["text", "json", "rest"]
    with pytest.raises(ValueError):
        api("xml")
