"""Which nodes and GPUs interrupt jobs more often than chance explains: a ledger, not a ranking.

`events` asks a Prometheus what befell each node, and Slurm's accounting which jobs failed there;
`ledger` counts interruptions and says who has more than the fleet's rate explains, by the exact
`intervals` of a rate; `notice` is the file that `stagewatch check` reads; `command` tells.  Open
`ledger` first.
"""
