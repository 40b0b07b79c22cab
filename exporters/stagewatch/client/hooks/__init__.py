"""Hooks into the timers of RL frameworks: one module per framework.

`stagewatch.install` imports a framework's module.  It lists the framework's own names for its
stages (`NAMES`) and the functions to replace in the framework's modules (`MODULES`).  `patching.py`
replaces functions, `span.py` records their stages, and `ray_worker.py` is for Ray's workers.  Open
`nemo_rl.py`, the shortest, first.
"""
