"""One trace for Perfetto and Chrome, from the rings of events of a job's ranks.

`sources` copies records with their rings, on this node or from the pages of agents.  `tracks` makes
slices, instants and counters of them.  `history` asks a Prometheus for the agents, and for wait
classes and verdicts over the same time.  Open `command` first.
"""
