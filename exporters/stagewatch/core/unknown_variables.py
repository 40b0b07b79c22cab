"""Variables that begin as ours do but that nothing of stagewatch reads: misspelt, most likely."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator

PREFIX = "STAGEWATCH_"

OTHERS = frozenset(
    PREFIX + name
    for name in (
        *("CONFIG", "DIR", "STATE_DIR", "FAULT_DIR", "UNDO_DIR", "FAULT_ID"),
        *("JOB_ID", "RANK", "ROLE", "FRAMEWORK", "COLLECTIVES"),  # the client's
        "PROMETHEUS_URL",
        *("JOBS_DIR", "PATH", "NODE", "CLUSTER"),  # of the scripts in deploy/
        *("RUN", "RUNTIME", "IMAGE", "NETWORK", "BUILD_NETWORK", "APT_PACKAGES"),  # compose.yaml
        "FRAMEWORKS",  # of the tests
    )
)
"""Variables that are no option of an agent."""

_OTHER_PREFIXES = (PREFIX + "CHECK_", PREFIX + "BENCH_")
"""`stagewatch check` looks after its own; the benchmarks' are nobody's else business."""

_SERVICE = re.compile(r"\w+_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_\w+)?)")
"""What Kubernetes gives every pod for a service, one that is called stagewatch-node, say.
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""


def unknown_variables(environ: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """A line for each name of `environ` that should be one of `known` and is not."""
    for name in sorted(environ):
        if (
            not name.startswith(PREFIX)
            or name.startswith(_OTHER_PREFIXES)
            or name in known
            or name in OTHERS
            or _SERVICE.fullmatch(name)
        ):
            continue
        close = difflib.get_close_matches(name, (*known, *OTHERS), 1, cutoff=0.8)
        hint = f"; did you mean {close[0]}?" if close else ""
        yield f"unknown variable {name} has no effect{hint}"
