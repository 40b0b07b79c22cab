"""A job of a few ranks on one device, and what an agent's collector and the judge make of it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.core.processes import Children
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import nccl_ras
from stagewatch.incidents.collector import NCCL, IncidentsCollector
from stagewatch.incidents.files import IncidentDirectory, read, with_evidence
from stagewatch.judgement.from_node import observe
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.nccl.files import NcclFiles
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.stacks import StackTaker
from stagewatch.run.command import LOADER

ROOT = Path(__file__).parents[2]
RANKS = 4
PATIENCE_SECONDS = 90.0
TOLD_BY = NCCL.labels.index("witness")


class Job:
    """Ranks that all reduce on one device."""

    def __init__(self, directory: Path, name: str, device: str, **environ: str) -> None:
        self.name, self._directory = name, directory / name
        self._device, self._environ = device, environ
        self._children = Children()
        self._files, self._proc = GuardedFiles(), Procfs()
        self._directory.mkdir()
        (self._directory / "ranks").mkdir()
        self._records = RecordDirectory(self._directory / "ranks", self._proc)
        self._ranks = RankDirectory(self._records, fresh_for=0.0)
        self._incidents = IncidentDirectory(self._directory / "incidents")
        self._collector = IncidentsCollector(
            *(self._ranks, self._proc, self._incidents, StackTaker()),
            files=self._files,
            nccl=NcclFiles(self._directory / "ranks", self._proc),
        )
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: object) -> None:
        """Start the ranks: steps in all, what happens, in which step."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environ = os.environ | {
            "PYTHONPATH": f"{LOADER}:{ROOT / 'exporters'}:{ROOT}",
            "STAGEWATCH_DIR": str(self._directory / "ranks"),
            "STAGEWATCH_JOB_ID": self.name,
            "DEVICE": self._device,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(RANKS),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(self._directory / "fr-"),
            "TORCH_FR_DUMP_TEMP_FILE": str(self._directory / "dump-"),
        }
        for rank in range(RANKS):
            mine = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-m", "tests.device.rank", *map(str, arguments)]
            log = self._directory / f"{rank}.log"
            process = self._children.start(command, log=log, environ=environ | mine | self._environ)
            self.processes.append(process)

    def said(self, rank: int) -> str:
        """The end of what a rank has printed."""
        log = self._directory / f"{rank}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def hangs(self, witnesses: set[str]) -> tuple[set[str], Verdict | None]:
        """Who of these has told of the hang, and the verdict, once all have or patience ends."""
        told: set[str] = set()
        verdict, end = None, time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and (verdict is None or not witnesses <= told):
            time.sleep(1.0)
            if all(process.poll() is not None for process in self.processes):
                break
            with contextlib.suppress(NoData):
                told |= {labels[TOLD_BY] for labels in self._look().families.get(NCCL, ())}
            verdict = self._verdict() or verdict
        return told, verdict

    def _look(self) -> Samples:
        return self._collector.collect()

    def _verdict(self) -> Verdict | None:
        facts = observe(self._ranks, self._proc, looks=2, pause=0.3)
        kept = read(self._directory / "incidents", {self.name})
        return next((v for v in judge(with_evidence(facts, kept, time.time())) if v.stalled), None)

    def keep(self, into: Path) -> None:
        """Leave the case there, and what the witnesses below Python have written."""
        at = {
            "STAGEWATCH_DIR": str(self._directory / "ranks"),
            "STAGEWATCH_INCIDENT_DIR": str(self._directory / "incidents"),
        }
        path = {"PYTHONPATH": f"{ROOT / 'exporters'}:{ROOT}"}
        command = [sys.executable, "-m", "stagewatch.cli", "inspect", "--json"]
        told = subprocess.run(
            command, env=os.environ | path | at, capture_output=True, timeout=60, check=False
        )
        below = into / f"{self.name}.tar.gz"
        with tarfile.open(below, "w:gz") as files:
            for file in sorted(self._directory.rglob("*")):
                if file.is_file():
                    files.add(file, file.relative_to(self._directory))
            with tempfile.TemporaryDirectory() as made:
                for name, content in {"inspect.json": told.stdout, "ras.json": ras()}.items():
                    (file := Path(made) / name).write_bytes(content)
                    files.add(file, name)

    def close(self) -> None:
        """End it."""
        self._children.stop(patience=0.0)
        self._collector.close()
        self._records.close()
        self._files.close()


def ras() -> bytes:
    """What NCCL's RAS answers, whoever listens."""
    for address in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError):
            return nccl_ras._ask(address, nccl_ras.PORT, nccl_ras.DEADLINE_SECONDS).encode()
    return b""
