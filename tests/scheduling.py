"""How pytest-xdist goes on when a worker dies."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling, Scheduling
from xdist.workermanage import WorkerController


class Survivors(LoadGroupScheduling):
    """The test that a worker died of has failed, and others run what was left to it.

    pytest-xdist 3.8 hands over the whole of its groups: the deadly test kills the next worker, and
    a worker that gets a group without a test left waits for ever.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that the worker ran, None if it had ended them all."""
        groups = self.assigned_work.pop(node)
        left = [
            (group, test) for group in groups for test in groups[group] if not groups[group][test]
        ]
        for group, test in left[1:]:
            self.workqueue.setdefault(group, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return left[0][1] if left else None

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker two tests at least: it begins one only when it knows the next."""
        if node not in self.registered_collections:
            return  # the dead one's replacement, which still collects
        super()._reschedule(node)
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) == 1:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """For `--dist loadgroup`."""
    return Survivors(config, log) if config.getvalue("dist") == "loadgroup" else None
