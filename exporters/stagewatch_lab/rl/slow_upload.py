"""S1 #1: the network between one train worker and the MetaServer delays and loses packets."""

from __future__ import annotations

import json
import random
from ipaddress import IPv4Address

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.waiting import wait_for
from stagewatch_lab.rl import wire
from stagewatch_lab.rl.scenario import Scenario, Surface

DELAY_SECONDS, JITTER_SECONDS, LOSS = 1.0, 0.5, 0.1
TEST_NETWORK = IPv4Address("198.18.0.0")
"""Set aside for measurements of networks: RFC 2544."""


class SlowUpload(Scenario):
    """The upload crawls, all rollout workers time out waiting for it."""

    name = "slow-upload"
    source = "S1 #1"
    summary = "packets of one train worker to the MetaServer are delayed by 1 s, and 10 % are lost"
    fault_type = "network_delay"
    expected_failure_stage = "rollout"
    stage = "update weights"
    naming = (
        "WeightSyncStraggler",
        "JobStalled",
        "Straggler",
        "RankRetransmits",
        "RankRoundTripSlow",
    )
    worker = ("train", 5)
    surface = Surface("rollout", "weights_update", "UpdateWeightError", "NCCL timeout")

    def prepare(self) -> None:
        worker = f"train-{self.rank}"
        if lacks := wire.missing():
            raise StagewatchError(f"{self.name} {lacks}")
        block = random.randrange(1 << 15)  # noqa: S311
        here, there = (str(TEST_NETWORK + 4 * block + host) for host in (1, 2))
        control = self.control("wire")
        link = self.run("wire", f"demo{block}", here, there, str(control))
        ready, log = control.with_suffix(".ready"), self.job.plan.directory / "wire.log"
        wait_for(ready.exists, f"a link: see {log}", 10)
        self.job.wrappers[worker] = ("nsenter", f"--net=/proc/{link.pid}/ns/net", "--")
        self.job.hosts[worker] = there
        self.job.metas[worker] = "metaserver.wire"
        self.job.meta_hosts["metaserver.wire"] = here
        self.means.append(f"{self.target} has a network namespace and a link of its own ({there})")

    def inject(self) -> None:
        port = self.job.book.wait("metaserver.wire")[1]
        trouble = {"delay": DELAY_SECONDS, "jitter": JITTER_SECONDS, "loss": LOSS, "port": port}
        draft = self.control("wire").with_suffix(".draft")
        draft.write_text(json.dumps(trouble))
        draft.replace(self.control("wire"))
        self.means.append(f"its packets to port {port} take 1 ± 0.5 s, one in ten is dropped")

    def revert(self) -> None:
        calm = {"delay": 0.0, "jitter": 0.0, "loss": 0.0, "port": 0}
        self.control("wire").write_text(json.dumps(calm))
