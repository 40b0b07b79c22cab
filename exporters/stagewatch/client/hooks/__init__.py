"""Hooks into the timers of RL frameworks: one module per framework.

`stagewatch.install` imports a framework's module, which lists the framework's own names for its
stages (`NAMES`) and says for each of the framework's modules what to replace (`MODULES`).
`patching.py` replaces functions, `span.py` records what they time, `batches.py` the long tail of
rollouts.  `generic.py` is for other frameworks, `ray_worker.py` for Ray's workers.  Open
`nemo_rl.py`, the shortest, first.
"""
