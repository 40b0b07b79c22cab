"""`stagewatch top`: the ranks of this node, or of a whole job, as they are at this moment.

A source looks again and again: `node` at the ranks of this node, by the judgement of `inspect`;
`job` at all ranks of a job, as a Prometheus and the recording rules know them.  Either yields a
`View`, which `rows` sorts, filters and lays out in columns that fit the terminal.  `screen` shows
it and answers keys, by textual; nothing else imports that.  Open `rows` first.
"""
