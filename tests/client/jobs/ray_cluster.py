"""A Ray cluster whose workers are hooked by Ray's set-up hook; verl's timer runs in two of them.

Prints the record of a worker that has a rank, and of one that drives others and has none.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from stagewatch.ranks.records import parse


def main() -> None:
    """Start a cluster, run a stage in each of two actors, and stop it."""
    warnings.simplefilter("ignore")  # of other people's packages
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80_000_000,
        _temp_dir=os.environ["RAY_DIRECTORY"],
        runtime_env={
            "worker_process_setup_hook": "stagewatch.client.hooks.ray_worker.setup",
            "env_vars": {
                "STAGEWATCH_DIR": os.environ["STAGEWATCH_DIR"],
                "STAGEWATCH_FRAMEWORK": "verl",
                "PYTHONPATH": os.environ["PYTHONPATH"],
            },
        },
    )

    @ray.remote(num_cpus=0)
    class Actor:
        def step(self) -> str:
            from verl.utils.profiler import marked_timer

            with marked_timer("update_actor", {}):
                (path,) = Path(os.environ["STAGEWATCH_DIR"]).glob(f"{os.getpid()}-*.rank")
                frame = parse(path.read_bytes()).open
                assert frame is not None and frame.stage == "train"
            return str(path)

    def shown(actor: Any) -> list[Any]:
        found = parse(Path(ray.get(actor.step.remote())).read_bytes())
        return [found.job_id, found.role, found.rank, found.world_size, found.framework]

    worker = Actor.options(  # type: ignore[attr-defined]
        runtime_env={"env_vars": {"RANK": "5", "WORLD_SIZE": "8"}}
    ).remote()
    controller = Actor.remote()  # type: ignore[attr-defined]
    report = {"worker": shown(worker), "controller": shown(controller)}
    ray.shutdown()
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
