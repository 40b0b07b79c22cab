"""What a process that is no rank is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.naming import name_of, shortened


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/usr/bin/python3", "-m", "vllm", "serve"], "python3 -m vllm serve"),
        (["vllm", "--api-key", "sk-123", "--port", "80"], "vllm --api-key ... --port 80"),
        (["x", "HF_TOKEN=hf_abc"], "x HF_TOKEN=..."),
        (["x", "redis://me:pass@host:1/0"], "x redis://host:1/0"),
        (["x", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"], "x ..."),
        (["python", "-c", "import secrets"], "python -c ..."),
        (["x", "a\nb\x1b[31m"], "x a b?[31m"),
        (["x", *map(str, range(20))], "x 0 1 2 3 4 5 6 ..."),
        ([], ""),
    ],
)
def test_a_command_line_is_short_and_without_secrets(words: list[str], told: str) -> None:
    cmdline = b"".join(word.encode() + b"\0" for word in words)
    assert shortened(cmdline) == told


@pytest.mark.parametrize(
    ("cgroup", "container", "job"),
    [
        (f"0::/system.slice/docker-{'ab' * 32}.scope", "abababababab", "7"),
        ("0::/system.slice/slurmstepd.scope/job_540/step_0/user/task_0", "", "540"),
    ],
)
def test_control_groups_tell_the_container_and_slurms_job(
    tmp_path: Path, cgroup: str, container: str, job: str
) -> None:
    process = tmp_path / "77"
    process.mkdir()
    (process / "cgroup").write_text(cgroup + "\n")
    (process / "cmdline").write_bytes(b"vllm\0serve\0")
    (process / "environ").write_bytes(b"STAGEWATCH_JOB_ID=7\0")
    name = name_of(Procfs(tmp_path), 77, 1)
    assert (name.container, name.job, name.arguments) == (container, job, "vllm serve")
