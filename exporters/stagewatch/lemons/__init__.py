"""Which nodes and GPUs interrupt jobs more often than chance explains: a ledger, not a ranking.

`events` asks a Prometheus for the interruptions of every node, and Slurm's accounting for failed
jobs; `ledger` counts interruptions and finds units with more than the fleet's rate explains, by the
exact `intervals` of a rate; `notice` is the file that `stagewatch check` reads; `command` prints
the ledger.  Open `ledger` first.
"""
