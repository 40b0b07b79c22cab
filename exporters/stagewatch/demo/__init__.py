"""`stagewatch demo`: a job of real processes really hangs, and the real stack says where it began.

`sync_stall` starts a `stack` (node agents, `prometheus` with the shipped rules) and a job, makes
one `rank` leave the loop early and waits for the alerts.  The repository's scenarios share
`scenario` with it; `job` is the endless job of compose.yaml.  Open `sync_stall` first.
"""
