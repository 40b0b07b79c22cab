"""stagewatch shows what is wrong in a GPU training cluster, and where it began.

A trainer imports this client, which needs the standard library alone.

    import stagewatch

    stagewatch.init(role="train")
    with stagewatch.stage("rollout", step=10):
        ...
    stagewatch.heartbeat(step=10)
    stagewatch.scalar("reward", 0.3)
    stagewatch.throughput(tokens=131_072, flops=5.5e15)
    with stagewatch.call("search"):  # a tool, an environment, a reward function
        ...
    stagewatch.install("trl")  # or: record the framework's own timers
    stagewatch.watch_collectives(torch.distributed)
    stagewatch.expect(600)  # a pause of up to ten minutes, not a hang
    stagewatch.replicated("grad_norm", 0.7)  # which must be equal on all ranks
    stagewatch.watch_replicas(model, optimizer)  # or: their weights, every 100 steps
"""

from stagewatch import client
from stagewatch.client import *  # noqa: F403 - what the client calls public

__all__ = ["__version__"]
__all__ += client.__all__

__version__ = "0.1.0"
