"""What may hide ranks of the node: no room for records, and unreadable processes."""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, gauge
from stagewatch.ranks.directory import RankDirectory

AVAILABLE = gauge(
    "stagewatch_record_directory_available_bytes",
    "Room for further stage records, 0 also where no file can be made; a rank that begins while "
    "there is none goes without a record.",
)
OVER_QUOTA = gauge(
    "stagewatch_record_directory_over_quota_bytes",
    "What the files of a user take of the directory of stage records, where that is more than his "
    "256 records may; many small files count as 16 KiB each. Once it is full, no rank of anybody "
    "can begin a record.",
    ("uid",),
)
UNREAD = gauge(
    "stagewatch_processes_unread",
    "Processes that may be ranks, but whose environment does not answer, as while they are stuck "
    "in mmap on a silent mount; none is read again before it answers.",
)
DENIED = gauge(
    "stagewatch_processes_denied",
    "Processes of other users that the agent may not read: of these nobody knows whether they are "
    "ranks, what they move and which sockets they hold. More than 0 says that the agent lacks "
    "CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH, or reaches no keeper that has them.",
)


class CensusCollector(Collector):
    """Shows what may hide ranks from us."""

    def __init__(self, ranks: RankDirectory) -> None:
        self._ranks = ranks

    def collect(self) -> Samples:
        census = self._ranks.look()
        out = Samples()
        out.add(AVAILABLE, census.available_bytes)
        out.add_all(OVER_QUOTA, self._ranks.over_quota())
        if census.unread is not None:
            out.add(UNREAD, len(census.unread))
            out.add(DENIED, len(census.denied))
        if not out.families:
            raise NoData("no directory for stage records, and ranks are not found otherwise")
        return out


SPEC = Declaration(
    name="census",
    help="room for stage records, and processes that may be ranks but cannot be read",
    interval=5.0,
    options=NoOptions,
)
