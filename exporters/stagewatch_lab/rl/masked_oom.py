"""S1 #3: a train worker runs out of GPU memory, and a slow scheduler hides it in the logs."""

from __future__ import annotations

import json

from stagewatch_lab.rl.plan import GIB
from stagewatch_lab.rl.scenario import Scenario, Surface

EXTRA = 4 * GIB
DELAY_SECONDS, JITTER_SECONDS = 15, 5


class MaskedOom(Scenario):
    """The first failure is the train worker's, the last error the controller's."""

    name = "masked-oom"
    source = "S1 #3"
    summary = "one train worker's GPU fills up to 79 GB, and the scheduler's API answers late"
    fault_type = "gpu_memory"
    expected_failure_stage = "cleanup"
    stage = "train"
    naming = ("FirstFailure",)
    worker = ("train", 5)
    surface = Surface("controller", "cleanup", "JobStopError", "Request timeout")

    @property
    def origin(self) -> dict[str, str]:
        return {"role": "train", "rank": str(self.rank), "stage": "train"}

    def prepare(self) -> None:
        self.hold_up("scheduler.proxy", "scheduler", "scheduler")

    def inject(self) -> None:
        plan = self.job.plan
        delay = {"delay": plan.seconds(DELAY_SECONDS), "jitter": plan.seconds(JITTER_SECONDS)}
        self.control("scheduler").write_text(json.dumps(delay))
        account = str(self.job.device_file(self.rank))
        rate = str(GIB / plan.seconds(5))
        self._hog = self.run("hogs", "device", account, str(EXTRA), rate)
        self.means += [
            f"another process takes 4 GB of the (stand-in) GPU of {self.target}",
            f"messages to and from the scheduler's API take {delay['delay']:.2f} s",
        ]

    def revert(self) -> None:
        self.control("scheduler").unlink(missing_ok=True)
        if hasattr(self, "_hog"):
            self._hog.kill()
            self._hog.wait()
