"""A Prometheus as stagewatch asks it: queries are built, sent to any server that has Prometheus'
query API, and answered as plain values.

`selectors` builds the part of a query that names series: it quotes every label's value, so that a
job or a node may have any name.  Whoever writes a query opens that first.
"""
