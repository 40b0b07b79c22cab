"""`stagewatch top`: the ranks of this node, or of a whole job, at this moment.

A source reads ranks again and again: `node` those of this node, judged as in `inspect`; `job` all
ranks of a job, from a Prometheus with the recording rules.  Both yield a `View`.  `rows` sorts it,
filters it and lays it out in columns that fit the terminal.  `screen` shows it and handles keys,
with textual; nothing else imports that.  Open `rows` first.
"""
