"""A large Slurm cluster as text, and commands that print it."""

from __future__ import annotations

from pathlib import Path

from stagewatch.slurm.transport.text import FIELD, RECORD

NOW = 1_790_000_000
GPUS_OF_A_NODE = 8


def write_commands(directory: Path, *, nodes: int, jobs: int) -> Path:
    """squeue, scontrol and the others as scripts over files; returns their directory.

    A fifth of the jobs runs, on half of the nodes' GPUs; the rest waits for 30 different reasons.
    A tenth of the jobs differs from one answer of squeue to the next.
    """
    bin_dir = directory / "bin"
    bin_dir.mkdir()
    for name, turn in (("squeue.out", 0), ("squeue.next", 1)):
        _write(directory / name, (_job(number, nodes, jobs, turn) for number in range(jobs)))
    _write(directory / "nodes.out", (_node(number) for number in range(nodes)))
    scripts = {
        "squeue": f"cd {directory} && cat squeue.out && mv squeue.out squeue.last "
        "&& mv squeue.next squeue.out && mv squeue.last squeue.next",
        "scontrol": f"""case "$*" in
*nodes*) exec cat {directory}/nodes.out;;
*ping*) echo 'Slurmctld(primary) at ctl is UP';;
esac""",
        "sdiag": "echo 'Server thread count:  3'",
        "sacct": "exit 0",
        "sacctmgr": "exit 0",
    }
    for name, body in scripts.items():
        script = bin_dir / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    return bin_dir


def _write(path: Path, lines: object) -> None:
    with path.open("w") as file:
        file.writelines(lines)  # type: ignore[arg-type]


def _job(number: int, nodes: int, jobs: int, turn: int) -> str:
    running = number < jobs // 5
    partition = f"p{number % 20}" + (f",p{(number + 7) % 20}" if number % 11 == 0 else "")
    gpus = 1 + number % 4
    eligible = NOW - number + (turn if number % 10 == 0 else 0)
    tres = f"cpu=16,mem=64G,node=1,billing=16,gres/gpu={gpus},gres/gpu:h200={gpus}"
    values = (
        *(str(1000 + number), str(1000 + number)),
        *(("RUNNING", "None") if running else ("PENDING", f"Reason{number % 30}")),
        *(partition, f"user{number % 5000}", f"account{number % 700}", "1", "1", "*"),
        f"n{number % nodes:05}" if running else "",
        *(tres, f"gres:gpu:h200:{gpus}", "N/A", "N/A", "N/A"),
        *(str(NOW - number), str(eligible)),
        *((str(NOW), str(NOW + 86400)) if running else ("N/A", "N/A")),
        *("N/A", str(number % 3 // 2), "N/A"),
    )
    return FIELD.join(values) + RECORD + "\n"


def _node(number: int) -> str:
    used = number % (GPUS_OF_A_NODE + 1)
    indices = f"0-{used - 1}" if used else "N/A"
    drained = number % 50 == 0
    reason = f" Reason=Xid 79 on GPU {number % 8} [root@{NOW}]" if drained else ""
    return (
        f"NodeName=n{number:05} Arch=x86_64 CoresPerSocket=48  CPUAlloc={used * 12} CPUEfctv=96 "
        "CPUTot=96 CPULoad=12.5 AvailableFeatures=hgx,ib ActiveFeatures=hgx,ib "
        f"Gres=gpu:h200:{GPUS_OF_A_NODE}(S:0-1) GresDrain=N/A "
        f"GresUsed=gpu:h200:{used}(IDX:{indices}) NodeAddr=n{number:05} NodeHostName=n{number:05} "
        "Port=6818 Version=22.05.8 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian "
        "RealMemory=2000000 AllocMem=0 FreeMem=1900000 Sockets=2 Boards=1 "
        f"State={'MIXED+DRAIN' if drained else 'MIXED'} ThreadsPerCore=1 TmpDisk=0 Weight=1 "
        f"Owner=N/A MCS_label=N/A Partitions=p{number % 20},all  BootTime={NOW - 99} "
        f"SlurmdStartTime={NOW - 90} LastBusyTime={NOW} CfgTRES=cpu=96,mem=2000000M,billing=96,"
        f"gres/gpu=8 AllocTRES=cpu={used * 12} CapWatts=n/a CurrentWatts=0 AveWatts=0{reason}\n"
    )
