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
    write(job / "pids.current", 12)
    write(job / "pids.max", 100)
    return Cgroups(tmp_path / "proc", [Mount(str(tmp_path / "cg"), "cgroup2", "x", "0:1")])


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    groups = v2(tmp_path)
    assert groups.usage(9, "memory") == Usage(900, 1000), "the job's, not the task's"
    assert groups.usage(9, "pids") == Usage(12, 100)


def test_kills_are_those_of_the_group_itself(tmp_path: Path) -> None:
    file = v2(tmp_path).oom_file(9)
    assert file is not None
    assert oom_kills(file) == 3
    file.unlink()
    assert oom_kills(file) is None


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    write(
        tmp_path / "proc/9/cgroup",
        "5:pids:/a\n4:memory:/slurm/job_7\n3:cpu,cpuacct:/x\n1:name=systemd:/\n0::/",
    )
    job = tmp_path / "memory/slurm/job_7"
    write(job / "memory.usage_in_bytes", 70)
    write(job / "memory.limit_in_bytes", 9223372036854771712)
    write(job / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2")
    mounts = [
        Mount(str(tmp_path / "unified"), "cgroup2", "x", "0:1"),
        Mount(str(tmp_path / "memory"), "cgroup", "x", "0:2"),
        Mount(str(tmp_path / "cpu,cpuacct"), "cgroup", "x", "0:3"),
    ]
    groups = Cgroups(tmp_path / "proc", mounts)
    assert groups.usage(9, "memory") == Usage(70, None)
    file = groups.oom_file(9)
    assert file is not None
    assert oom_kills(file) == 2


def test_a_group_outside_of_our_own_root_is_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "proc/9/cgroup", "0::/../../etc")
    write(tmp_path / "etc/memory.current", 1)
    root = tmp_path / "a/b"
    root.mkdir(parents=True)
    groups = Cgroups(tmp_path / "proc", [Mount(str(root), "cgroup2", "x", "0:1")])
    assert groups.usage(9, "memory") is None
    assert groups.oom_file(9) is None


def test_a_process_that_is_gone_has_no_group(tmp_path: Path) -> None:
    groups = v2(tmp_path)
    assert groups.usage(10, "memory") is None
    assert groups.oom_file(10) is None
