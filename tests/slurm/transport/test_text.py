"""Slurm's text output: separators of our own, odd names, output that is cut short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.notation import NodeGpus
from stagewatch.slurm.transport import text
from stagewatch.slurm.transport.text import FIELD, RECORD, records

JOB = {
    "JobID": "7",
    "ArrayJobID": "7",
    "State": "RUNNING",
    "Reason": "None",
    "Partition": "gpu*",
    "UserName": "ada",
    "Account": "(null)",
    "NumNodes": "2",
    "NumTasks": "2",
    "Sockets": "*",
    "NodeList": "n[1-2]",
    "tres-alloc": "cpu=2,gres/gpu=4,gres/gpu:h200=4",
    "tres-per-node": "N/A",
    "tres-per-job": "N/A",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "SubmitTime": "1750000000",
    "EligibleTime": "N/A",
    "StartTime": "1750000060",
    "EndTime": "NONE",
    "PreemptTime": "N/A",
    "RestartCnt": "1",
    "ArrayTaskID": "N/A",
}
NODE = (
    "NodeName=h1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=3 CPUEfctv=8 CPUTot=8 CPULoad=0.41 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h200:8(S:0-1) GresDrain=N/A "
    "GresUsed=gpu:h200:6(IDX:0-2,5-7) NodeAddr=10.0.0.1 NodeHostName=h1 Port=46261 "
    "OS=Linux 6.1.0 #1 SMP  RealMemory=4000 State=MIXED+DRAIN ThreadsPerCore=1 "
    "Partitions=gpu,urgent  BootTime=1795242213 SlurmdStartTime=None LastBusyTime=1795244997 "
    "CfgTRES=cpu=8,gres/gpu=8 AllocTRES=cpu=3 CapWatts=n/a CurrentWatts=0 "
)


def line(**changes: str) -> str:
    """One record of squeue."""
    return FIELD.join({**JOB, **changes}.values()) + RECORD + "\n"


def test_pending_tasks_of_an_array_are_one_record_with_their_number() -> None:
    """squeue --array prints each; they are equal."""
    pending = {"State": "PENDING", "Reason": "Priority", "ArrayJobID": "7"}
    printed = "".join(line(**pending, ArrayTaskID=str(task)) for task in range(1000))
    found = text.parse_jobs((printed + line(JobID="8", ArrayJobID="7")).encode())
    assert [(job.job_id, job.tasks, job.array_job_id) for job in found.items] == [
        (7, 1000, None),
        (8, 1, 7),
    ]


@pytest.mark.parametrize(
    ("request_", "gpus"),
    [
        ({"tres-per-node": "gres:gpu:h200:2"}, (("h200", 4),)),
        ({"tres-per-job": "gres:gpu:a100:3"}, (("a100", 3),)),
        ({"tres-per-task": "gres:gpu"}, (("", 2),)),
        ({"tres-per-socket": "gres:gpu:h200:2", "Sockets": "2"}, (("h200", 8),)),
        ({}, ()),
    ],
)
def test_gpus_of_a_job_that_slurm_does_not_track(
    request_: dict[str, str], gpus: tuple[tuple[str, int], ...]
) -> None:
    """Without gres/gpu among the TRES the job's own request says how many."""
    (job,) = text.parse_jobs(line(**{"tres-alloc": "cpu=2", **request_}).encode()).items
    assert job.gpus == gpus


def test_output_cut_short_keeps_what_is_whole() -> None:
    """The last record has lost its end."""
    whole = line(JobID="1") + line(JobID="2")
    found = text.parse_jobs(whole.encode()[:-40])
    assert [job.job_id for job in found.items] == [1]
    assert found.malformed == 1


def test_state_and_reason_of_a_later_version_are_kept_as_they_are() -> None:
    """Unknown names are bounded names all the same."""
    (job,) = text.parse_jobs(line(State="FROZEN", JobID="9").encode()).items
    assert job.state == "FROZEN"
    (job,) = text.parse_jobs(line(State="PENDING", Reason="BrandNewReason").encode()).items
    assert job.reason == "BrandNewReason"


@given(st.lists(st.text(max_size=30), max_size=8))
def test_no_text_is_fatal_to_the_queue(parts: list[str]) -> None:
    """A good record amid anything is read, and the rest is counted or refused as a whole."""
    output = RECORD.join([*parts, line().rstrip(RECORD + "\n"), ""]).encode(errors="replace")
    found = text.parse_jobs(output)
    assert [job for job in found.items if job.job_id == 7 and job.user == "ada"]


@given(st.lists(st.lists(st.text("abc ", max_size=3), min_size=3, max_size=3), max_size=6))
def test_records_come_back_with_their_multiplicity(rows: list[list[str]]) -> None:
    """What was joined is what is read."""
    output = "".join(FIELD.join(row) + RECORD + "\n" for row in rows).encode()
    split = [(raw.decode().split(FIELD), times) for raw, times in records(output)]
    assert [row for row, times in split for _ in range(times)] == [row[:-1] for row in rows]


def test_node_is_read() -> None:
    """Base state, flags, partitions, GPUs with their indices, address and times."""
    (node,) = text.parse_nodes((NODE + "\n").encode()).items
    assert (node.name, node.state, node.flags) == ("h1", "MIXED", {"DRAIN"})
    assert node.partitions == ("gpu", "urgent")
    assert node.gpus == (NodeGpus("h200", 8, 6, (0, 1, 2, 5, 6, 7)),)
    assert node.address == "10.0.0.1"


@given(st.text(alphabet=st.characters(blacklist_characters="\n\x00", blacklist_categories=["Cs"])))
def test_reason_can_hold_anything_and_changes_nothing_else(said: str) -> None:
    """Brackets, `State=IDLE`, `|`: the signature is the last one before other free text."""
    said = said.replace(" Comment=", "").replace(" Extra=", "")
    output = f"{NODE}Reason={said} [root@1795245024]\n".encode()
    (node,) = text.parse_nodes(output).items
    assert (node.name, node.state, node.flags) == ("h1", "MIXED", {"DRAIN"})
    assert (node.reason_user, node.reason_time) == ("root", 1795245024)
    assert node.reason in (" ".join(said.split()), "")


@pytest.mark.parametrize(
    ("free_text", "reason", "user", "when"),
    [
        ("Reason=Not responding [slurm@1795245024]", "Not responding", "slurm", 1795245024),
        (
            "Reason=bad [x@7] GPU [root@1795245024]        second line Comment=a [b@9]",
            "bad [x@7] GPU second line",
            "root",
            1795245024,
        ),
        ("Reason=without a signature", "without a signature", "", None),
        ("Reason=a [root@2026-11-21T07:10:24]", "a", "root", None),
        (
            "Reason=first [root@1795245024]        second [x@1]",
            "first second [x@1]",
            "root",
            1795245024,
        ),
        (
            "Reason=a Comment=b State=IDLE [root@1795245024] Comment=c",
            "a Comment=b State=IDLE",
            "root",
            1795245024,
        ),
        ("Comment=only a comment", "", "", None),
    ],
)
def test_reason_with_user_and_time(
    free_text: str, reason: str, user: str, when: int | None
) -> None:
    """Line breaks come as spaces; a comment is not part of the reason."""
    (node,) = text.parse_nodes(f"{NODE}{free_text}\n".encode()).items
    assert (node.reason, node.reason_user, node.reason_time) == (reason, user, when)


@pytest.mark.parametrize("label", ["Comment", "Parameters"])
def test_free_text_forges_no_field_of_a_node(label: str) -> None:
    """Everyone who may run `scontrol update` writes it; it comes after the structure."""
    forged = (
        "x State=DOWN Gres=gpu:b200:64 Partitions=all BootTime=7 Reason=broken [eve@1795245024]"
    )
    (forgery,) = text.parse_nodes(f"{NODE}{label}={forged}\n".encode()).items
    assert forgery == text.parse_nodes(NODE.encode()).items[0]
