"""Asks a child process what processes of this node wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stagewatch.core.children.start import Child, Start, plainly
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.core.privileges.seccomp import NETLINK
from stagewatch.core.state_file import BROKEN
from stagewatch.ranks.waits.child import ANSWER_SECONDS
from stagewatch.ranks.waits.model import Process, State, Waiting, from_json

APART_SECONDS = 2.0
"""Time between the two looks."""
MAX_PIDS = 256

READER = Child("stagewatch.ranks.waits.child", may=(NETLINK,))


class Waits:
    """Finds out what processes wait for: call `ask`, then `answer`; `rest` ends the child.

    Only for a job that is suspected: it costs some tenths of a second of CPU time.
    """

    def __init__(self, *, apart: float = APART_SECONDS, start: Start = plainly) -> None:
        patience = ANSWER_SECONDS + apart + 10.0
        self._apart = apart
        self._wanted: list[int] = []
        self._error: StagewatchError | None = None
        self._child = Supervisor(
            "the reader of waits", lambda: start(READER), timeout=patience, start_timeout=patience
        )

    def ask(
        self,
        pids: Iterable[int],
        *,
        starts: Mapping[int, int] | None = None,
        threads: Mapping[int, int] | None = None,
        connections: Iterable[tuple[str, str]] = (),
        connected: Iterable[int] = (),
    ) -> None:
        """Begin to look at what these processes wait for, and what their targets wait for in turn.

        `starts`: when the processes began, in ticks since the boot, so that no other process of
        the same number is looked at.  `threads`: the thread of a process that counts, by the
        process's own number, if it is not the main one.  `connections`: TCP connections for which
        processes of other nodes wait, by the end here and the other end (`Connection.remote` and
        `.local` in the answer of the other node); their holders are looked at too.  `connected`:
        some of `pids`; the answer has the connections to other nodes of these processes and of the
        processes that they wait for.
        """
        self._wanted = wanted = list(dict.fromkeys(pids))
        self._error = None
        question = {
            "targets": [
                [pid, (starts or {}).get(pid, 0), (threads or {}).get(pid, 0)]
                for pid in wanted[:MAX_PIDS]
            ],
            "connections": [list(one) for one in connections],
            "connected": list(connected),
            "apart": self._apart,
        }
        try:
            self._child.begin(question)
        except StagewatchError as error:
            self._error = error

    def answer(self) -> Waiting | None:
        """The answer; None while the child still looks.  Never waits.

        If the child fails, the answer has no processes, and `left_out` says why.
        """
        try:
            if self._error is not None:
                raise self._error
            return self._child.answer(_read)
        except StagewatchError as error:
            unknown = {pid: Process(pid, 0, State.UNKNOWN, "") for pid in self._wanted}
            return Waiting(unknown, left_out=(str(error),))

    def rest(self) -> None:
        """End the child until the next question."""
        self._child.dismiss()

    def close(self) -> None:
        """End the child for good."""
        self._child.close()


def _read(answer: object) -> Waiting:
    try:
        return from_json(answer)
    except BROKEN as error:
        raise SourceError(f"the reader of waits has answered something else: {error}") from error
