"""What may hide ranks of the node: no room for records, and unreadable processes."""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, gauge
from stagewatch.ranks.directory import RankDirectory

AVAILABLE = gauge(
    "stagewatch_record_directory_available_bytes",
    "Room for further stage records; 0 also if no file can be made. A rank that begins while there "
    "is no room keeps no record.",
)
OVER_QUOTA = gauge(
    "stagewatch_record_directory_over_quota_bytes",
    "Bytes that the files of a user take in the directory of stage records, if more than 256 "
    "records take; small files count as 16 KiB each. Once the directory is full, no rank of any "
    "user can begin a record.",
    ("uid",),
)
UNREAD = gauge(
    "stagewatch_processes_unread",
    "Processes that may be ranks, but whose environment does not answer, for example while they "
    "are stuck in mmap on a silent mount. The agent reads them again only after they answer.",
)
DENIED = gauge(
    "stagewatch_processes_denied",
    "Processes of other users that the agent may not read. It does not know whether these are "
    "ranks, which bytes they move and which sockets they hold. More than 0 means that the agent "
    "lacks CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH, or reaches no keeper that has them.",
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
