"""Real systems for faults to be injected into; part of the repository, not of the wheel.

`rl` is a small RL training system of real processes, `slurm` a real Slurm cluster on one machine.
Each has scenarios: a fault, what it does, and what stagewatch should say of it.  `stagewatch demo
--scenario NAME` plays one, and the tests judge what is said; begin with `command.py`.
"""
