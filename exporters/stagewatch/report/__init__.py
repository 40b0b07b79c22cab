"""Reports on an injected fault, on failures over a period, and on what the GPUs were paid for, from
what a Prometheus has kept.

`history` asks the server for series.  An experiment goes from the marker and events (`events`) and
the series that left their baselines (`deviations`) to a `diagnosis`, all put together in
`experiment`; a recovery from signs (`incidents`) over `phases` and `jobs` to `recovery`; goodput
from the `ledger` of GPU-seconds over `attempts` to `goodput`.  `story` writes a
report's sentences, `pages` its HTML, `records` its JSON and CSV, and `figures` draws an experiment.
Open `command` first.
"""
