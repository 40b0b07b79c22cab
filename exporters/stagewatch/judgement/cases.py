"""Keeps the case of every verdict as a file, to explain it later."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pwd
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from stagewatch.core.acl import let_read
from stagewatch.core.files import write_atomically
from stagewatch.judgement.case_file import CaseFile, as_json, packed
from stagewatch.judgement.from_prometheus import JobKey
from stagewatch.judgement.limits import Limits
from stagewatch.judgement.watch import Judged

log = logging.getLogger(__name__)

CASES = Path("/var/lib/stagewatch/cases")
MAX_FILES = 256
MAX_TOTAL_BYTES = 256 << 20
MAX_BYTES = 16 << 20
"""The largest case, packed."""
_NAME = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9._-]{1,100}\.json\.gz")

Answer = tuple[object, ...]
"""The judge's answer for each role, and the proposals."""


class Cases:
    """A directory of cases, with a bounded size.

    A job in trouble has one case, which is written again when its verdict changes."""

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        owner: Callable[[JobKey], str] = lambda key: "",
    ) -> None:
        """`owner`: the name of a job's user, who may read its case; empty if unknown."""
        self._directory = directory
        self._limits = limits
        self._owner = owner
        self._written: dict[JobKey, tuple[str, Answer]] = {}
        """By job, the moment in its file's name, and the answer in the file."""
        self._failed = False

    def keep(self, key: JobKey, job: Judged) -> None:
        """Write the case of a job if its verdict has changed."""
        answer: Answer = tuple(
            (
                state.verdict.role,
                state.verdict.evidence,
                state.paged,
                tuple((charge.rank.rank, charge.evidence) for charge in state.verdict.charges),
            )
            for state in job.states
        )
        answer += tuple((one.node, one.uuid, one.witness) for one in job.proposals)
        moment, written = self._written.get(key, ("", ()))
        moment = moment or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(job.moments[-1].time))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", key[1])[:80]
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:8]
        job.case = self._directory / f"{moment}-{name}-{digest}.json.gz"
        if written == answer:
            return
        self._written[key] = moment, answer
        data = packed(case_of(key, job, self._limits))
        if len(data) <= MAX_BYTES:
            self._write(job.case, data, key)

    def forget_all_but(self, keys: Collection[JobKey]) -> None:
        """Forget the jobs that are in trouble no more: their next trouble is another case."""
        self._written = {key: one for key, one in self._written.items() if key in keys}

    def _write(self, file: Path, data: bytes, key: JobKey) -> None:
        try:
            self._directory.mkdir(exist_ok=True)
            write_atomically(file, data, mode=0o640, durable=False)
        except OSError as error:
            if not self._failed:
                log.warning("no case is kept: %s: %s", file, error.strerror)
            self._failed = True
        else:
            self._failed = False
            self._let_owner_read(file, key)
            self._prune()

    def _let_owner_read(self, file: Path, key: JobKey) -> None:
        # KeyError, ValueError: this machine does not know the user; OSError: no ACLs here.
        with contextlib.suppress(KeyError, ValueError, OSError):
            let_read(file, pwd.getpwnam(self._owner(key)).pw_uid, group=True)

    def _prune(self) -> None:
        total = 0
        with contextlib.suppress(OSError):
            files = sorted(one for one in self._directory.iterdir() if _NAME.fullmatch(one.name))
            for place, file in enumerate(reversed(files)):
                total += file.stat().st_size
                if place >= MAX_FILES or total > MAX_TOTAL_BYTES:
                    file.unlink()


def case_of(key: JobKey, job: Judged, limits: Limits) -> dict[str, Any]:
    """The case of a job as JSON."""
    case = CaseFile(*key, tuple(job.moments), limits, proposals=job.proposals)
    return as_json(case, job.states)
