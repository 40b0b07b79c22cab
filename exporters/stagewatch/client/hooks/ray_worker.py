"""Ray's worker set-up hook: what `stagewatch.install` does, in every worker.

    ray.init(runtime_env={
        "worker_process_setup_hook": "stagewatch.client.hooks.ray_worker.setup",
        "env_vars": {"STAGEWATCH_FRAMEWORK": "verl"},
    })

A worker's record begins with its first stage, by when its framework has told it its rank.
"""

from __future__ import annotations

import os

from stagewatch.client._install import install


def setup() -> None:
    """Install the hook of `STAGEWATCH_FRAMEWORK`, or all of them; never raises.

    With `STAGEWATCH_COLLECTIVES=1` the worker's collectives are counted too.
    """
    install(
        os.environ.get("STAGEWATCH_FRAMEWORK") or None,
        collectives=os.environ.get("STAGEWATCH_COLLECTIVES") == "1",
    )
