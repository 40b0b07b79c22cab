"""The API of the scheduler that the job runs under: `python -m stagewatch_lab.rl.scheduler PLAN`.

It belongs to the cluster, not to the job, so it keeps no record.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from stagewatch_lab.rl.messages import Content, begin_log, serve
from stagewatch_lab.rl.plan import Plan

log = logging.getLogger(__name__)

STOP_SECONDS = 1.0


def main(plan: Plan) -> None:
    """Serve for ever."""

    def stop(content: Content) -> Content:
        time.sleep(plan.seconds(STOP_SECONDS))
        log.info("stopped %s", content["job"])
        return {}

    serve(plan, "scheduler", "127.0.0.1", stop)


if __name__ == "__main__":
    begin_log()
    main(Plan.load(Path(sys.argv[1])))
