"""Control groups of both versions, as directories of files."""

from __future__ import annotations

from pathlib import Path

from stagewatch.host.cgroups import Cgroups, Usage, oom_kills
from stagewatch.host.mounts import Mount


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def v2(tmp_path: Path) -> Cgroups:
    write(tmp_path / "proc/9/cgroup", "0::/job_7/step_0/task_1")
    job = tmp_path / "cg/job_7"
    write(job / "memory.current", 900)
    write(job / "memory.max", 1000)
    write(job / "step_0/memory.current", 400)
    write(job / "step_0/memory.max", "max")
    write(job / "step_0/task_1/memory.current", 300)
    write(job / "step_0/task_1/memory.max", 5000)
    write(job / "step_0/task_1/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3")
    return Cgroups(tmp_path / "proc", [Mount(str(tmp_path / "cg"), "cgroup2", "x", "0:1")])


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    groups = v2(tmp_path)
    assert groups.memory(groups.of(9)) == Usage(900, 1000), "the job's, not the task's"


def test_kills_are_those_of_the_group_itself(tmp_path: Path) -> None:
    groups = v2(tmp_path)
    file = groups.oom_file(groups.of(9))
    assert file is not None
    assert oom_kills(file) == 3
    file.unlink()
    assert oom_kills(file) is None


CPU_STAT = """usage_usec 90
user_usec 60
system_usec 30
nr_periods {periods}
nr_throttled 4
throttled_usec {stopped}
nr_bursts 0
burst_usec 0"""
"""In the order of https://docs.kernel.org/admin-guide/cgroup-v2.html."""


def test_the_cpu_limit_that_stops_a_process_most_counts(tmp_path: Path) -> None:
    groups = v2(tmp_path)
    assert groups.throttled_seconds(groups.of(9)) is None, "no cpu controller on the way up"
    write(tmp_path / "cg/cpu.stat", "usage_usec 90\nuser_usec 60\nsystem_usec 30")
    write(tmp_path / "cg/job_7/cpu.stat", CPU_STAT.format(periods=7, stopped=2_500_000))
    write(tmp_path / "cg/job_7/step_0/cpu.stat", CPU_STAT.format(periods=7, stopped=100))
    assert groups.throttled_seconds(groups.of(9)) == 2.5


def test_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    write(tmp_path / "proc/9/cgroup", "3:cpu,cpuacct:/x\n0::/")
    write(tmp_path / "cpu/x/cpu.stat", "nr_periods 7\nnr_throttled 4\nthrottled_time 1500000000")
    groups = Cgroups(tmp_path / "proc", [Mount(str(tmp_path / "cpu"), "cgroup", "x", "0:3")])
    assert groups.throttled_seconds(groups.of(9)) == 1.5
