"""Several clusters behind one collector, so that each metric is exposed once, with its label."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from stagewatch.core.collector import Collector
from stagewatch.core.errors import NoData, StagewatchError, Stuck
from stagewatch.core.exposition import Metric, Samples

_KEEP = 3
"""Collections for which a failing cluster's last samples are shown, as the runner does."""


class Fleet(Collector):
    """Collects from every cluster at once; one that fails or hangs takes no other down.

    A cluster's samples are kept over two failures in a row and then dropped.  `patience` is how
    many seconds a cluster is waited for; one that takes longer is not asked again until it is done.
    """

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        *,
        patience: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = {name: _Member(name, each) for name, each in collectors.items()}
        self._patience = patience
        self._clock = clock
        self._last: dict[str, tuple[Samples, int]] = {}

    def collect(self) -> Samples:
        """All clusters' samples, each with its label.  Raises only if none has any."""
        deadline = self._clock() + self._patience
        for member in self._members.values():
            member.begin()
        errors: list[StagewatchError] = []
        for name, member in self._members.items():
            found = member.wait(deadline - self._clock())
            if isinstance(found, Samples):
                self._last[name] = (found, 0)
            elif isinstance(found, NoData):
                self._last.pop(name, None)
                errors.append(found)
            elif isinstance(found, StagewatchError):
                errors.append(type(found)(f"cluster {name}: {found}"))
                self._age(name)
            else:
                raise found
        if not self._last:
            real = [error for error in errors if not isinstance(error, NoData)]
            raise real[0] if real else errors[0]
        out = Samples()
        for name, (samples, _) in self._last.items():
            _merge(out, samples, name)
        return out

    def close(self) -> None:
        """Close every cluster's collector."""
        for member in self._members.values():
            member.collector.close()

    def _age(self, name: str) -> None:
        kept = self._last.pop(name, None)
        if kept is not None and kept[1] + 1 < _KEEP:
            self._last[name] = (kept[0], kept[1] + 1)


class _Member:
    """One cluster's collector, in a daemon thread for each call: an agent that stops waits for
    none of them."""

    def __init__(self, name: str, collector: Collector) -> None:
        self.collector = collector
        self._name = name
        self._done = threading.Event()
        self._done.set()
        self._result: Samples | BaseException = NoData("not collected yet")

    def begin(self) -> None:
        """Collect in the background, unless the call before is still under way."""
        if self._done.is_set():
            self._done.clear()
            threading.Thread(target=self._run, name=f"cluster-{self._name}", daemon=True).start()

    def wait(self, seconds: float) -> Samples | BaseException:
        """What came of it; `Stuck` where nothing has, in that time."""
        if self._done.wait(max(0.0, seconds)):
            return self._result
        return Stuck("it is still being asked")

    def _run(self) -> None:
        try:
            self._result = self.collector.collect()
        except BaseException as error:  # handed over, whatever it is
            self._result = error
        finally:
            self._done.set()


@lru_cache(maxsize=1024)
def _with_cluster(metric: Metric) -> Metric:
    return Metric(metric.name, metric.kind, metric.help, ("cluster", *metric.labels))


def _merge(out: Samples, samples: Samples, cluster: str) -> None:
    for metric, family in samples.families.items():
        target = out.families.setdefault(_with_cluster(metric), {})
        for labels, value in family.items():
            key = (cluster, *labels)
            target[key] = value
    out.dropped += samples.dropped
