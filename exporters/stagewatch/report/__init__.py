"""Reports on an injected fault and on failures over a period, from what a Prometheus has kept.

`history` asks the server for series.  An experiment goes from the marker and events (`events`) and
the series that left their baselines (`deviations`) to a `diagnosis`, all put together in
`experiment`; a recovery from signs (`incidents`) over `phases` and `jobs` to `recovery`.  `figures`
draws either, `pages` writes it as HTML and `records` as JSON and CSV.  Open `command` first.
"""
