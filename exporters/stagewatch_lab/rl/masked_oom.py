"""S1 #3: a train worker runs out of GPU memory, and a slow scheduler hides it in the logs."""

from __future__ import annotations

import json
import sys

from stagewatch_lab.rl.plan import GIB
from stagewatch_lab.rl.scenario import Scenario, Surface, rank_near

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

    @property
    def _rank(self) -> int:
        return rank_near(5, self.job.plan.trains)

    @property
    def target(self) -> str:
        return f"train_worker_{self._rank}"

    @property
    def origin(self) -> dict[str, str]:
        return {"role": "train", "rank": str(self._rank), "stage": "train"}

    @property
    def surface(self) -> Surface:
        return Surface("controller", "cleanup", "JobStopError", "Request timeout")

    def prepare(self) -> None:
        self.hold_up("scheduler.proxy", "scheduler", "scheduler")

    def inject(self) -> None:
        plan = self.job.plan
        delay = {"delay": plan.seconds(DELAY_SECONDS), "jitter": plan.seconds(JITTER_SECONDS)}
        self.control("scheduler").write_text(json.dumps(delay))
        account = str(self.job.device_file(self._rank))
        rate = str(GIB / plan.seconds(5))
        command = [sys.executable, "-m", "stagewatch_lab.rl.hogs", "device"]
        log = self.job.logs / "hog-device.out"
        self._hog = self.lab.children.start([*command, account, str(EXTRA), rate], log=log)
        self.means += [
            f"another process takes 4 GB of the (stand-in) GPU of {self.target}",
            f"messages to and from the scheduler's API take {delay['delay']:.2f} s",
        ]

    def revert(self) -> None:
        self.control("scheduler").unlink(missing_ok=True)
        if hasattr(self, "_hog"):
            self._hog.kill()
            self._hog.wait()
