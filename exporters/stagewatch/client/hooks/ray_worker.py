"""Ray's worker set-up hook: it calls `stagewatch.install` in every worker.

    ray.init(runtime_env={
        "worker_process_setup_hook": "stagewatch.client.hooks.ray_worker.setup",
        "env_vars": {"STAGEWATCH_FRAMEWORK": "verl"},
    })

A worker's record begins with its first stage, when its framework has given it a rank.
"""

from __future__ import annotations

import os

from stagewatch.client._install import install


def setup() -> None:
    """Install the hook of `STAGEWATCH_FRAMEWORK`, or all hooks without it.  Never raises."""
    install(os.environ.get("STAGEWATCH_FRAMEWORK") or None)
