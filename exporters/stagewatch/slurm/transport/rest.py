"""Asks a cluster through slurmrestd, over HTTP or a Unix socket.

https://slurm.schedmd.com/rest.html.  The version of the API is the newest that both sides know.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.model import (
    Controller,
    Diagnostics,
    EndedJob,
    Job,
    License,
    Node,
    NodeEvent,
    Records,
    Reservation,
)
from stagewatch.slurm.transport.http import HttpFailure, HttpReader
from stagewatch.slurm.transport.json import diagnostics as slurm_json_diag
from stagewatch.slurm.transport.json import records as slurm_json
from stagewatch.slurm.transport.json.values import Object
from stagewatch.slurm.transport.text.job_detail import Claim

OLDEST, NEWEST = 36, 45
"""Versions v0.0.N whose shapes are known."""
_LISTS_DUPLICATES = 39
_VERSION = re.compile(r"/slurm/v0\.0\.(\d{1,4})/")
_ENDED = "BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,TIMEOUT"


class SlurmRest:
    """One method for each kind of data; see `SlurmClient`."""

    def __init__(
        self,
        reader: Callable[[], HttpReader],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._make_reader = reader
        self._readers: dict[str, HttpReader] = {}
        self._wall = wall
        self._version: int | None = None

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue."""
        return slurm_json.jobs(self._ask("jobs", "slurm", "jobs", timeout))

    def nodes(self, timeout: float) -> Records[Node]:
        """The nodes."""
        return slurm_json.nodes(self._ask("nodes", "slurm", "nodes", timeout))

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics."""
        return slurm_json_diag.diagnostics(self._ask("diagnostics", "slurm", "diag", timeout))

    def ping(self, timeout: float) -> tuple[Controller, ...]:
        """Which controllers answer."""
        return slurm_json.ping(self._ask("ping", "slurm", "ping", timeout))

    def reservations(self, timeout: float) -> Records[Reservation]:
        """The reservations."""
        found = self._ask("reservations", "slurm", "reservations", timeout)
        return slurm_json.reservations(found)

    def licenses(self, timeout: float) -> Records[License]:
        """The licences."""
        return slurm_json.licenses(self._ask("licenses", "slurm", "licenses", timeout))

    def ended_jobs(self, timeout: float, ago: float) -> Records[EndedJob]:
        """Runs that ended.  Before v0.0.39 those of requeued jobs are not listed: `NoData`."""
        if self._known_version(self._reader("accounting_jobs"), timeout) < _LISTS_DUPLICATES:
            raise NoData("slurmrestd of before 23.02 lists no runs of requeued jobs")
        query = {
            "start_time": f"uts{int(self._wall() - ago)}",
            "state": _ENDED,
            "skip_steps": "true",
            "show_duplicates": "true",
        }
        found = self._ask("accounting_jobs", "slurmdb", "jobs", timeout, query)
        return slurm_json.ended_jobs(found)

    def node_events(self, timeout: float, ago: float) -> Records[NodeEvent]:
        """slurmrestd has no events of nodes."""
        raise NoData("slurmrestd has no events of nodes")

    def gpu_claims(self, timeout: float) -> Records[Claim]:
        """Nothing beyond what the queue says itself."""
        return Records(())

    def close(self) -> None:
        """Close every connection."""
        for reader in tuple(self._readers.values()):
            reader.close()

    def _ask(
        self,
        source: str,
        part: str,
        path: str,
        timeout: float,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        reader = self._reader(source)
        version = self._known_version(reader, timeout)
        try:
            body = reader.get(f"/{part}/v0.0.{version}/{path}", timeout, query)
        except HttpFailure as failure:
            if failure.status == 404 and part == "slurmdb":
                raise NoData("slurmrestd has no accounting") from failure
            if failure.status == 404:
                self._version = None  # it was upgraded, perhaps
            said = _error_in(failure.body)
            raise SourceError(f"slurmrestd: {failure}{f': {said}' if said else ''}") from failure
        return slurm_json.document(body, f"slurmrestd {path}")

    def _reader(self, source: str) -> HttpReader:
        """One for each source: a reader asks for one thing at a time."""
        return self._readers.setdefault(source, self._make_reader())

    def _known_version(self, reader: HttpReader, timeout: float) -> int:
        """The newest version of the API that the server has and whose shapes are known."""
        if self._version is not None:
            return self._version
        try:
            body = reader.get("/openapi/v3", timeout)
        except HttpFailure as failure:
            raise SourceError(f"slurmrestd: {failure}") from failure
        paths = slurm_json.document(body, "slurmrestd /openapi/v3").get("paths")
        matches = (_VERSION.match(path) for path in (paths if isinstance(paths, dict) else ()))
        offered = {int(match[1]) for match in matches if match}
        usable = [number for number in offered if OLDEST <= number <= NEWEST]
        if not usable:
            seen = ", ".join(f"v0.0.{number}" for number in sorted(offered)) or "none"
            raise SourceError(f"slurmrestd offers no known version of its API ({seen})")
        self._version = max(usable)
        return self._version


def _error_in(body: bytes) -> str:
    try:
        slurm_json.document(body, "")
    except SourceError as error:
        said = str(error).removeprefix(": ")
        return "" if "JSON" in said else said
    return ""
