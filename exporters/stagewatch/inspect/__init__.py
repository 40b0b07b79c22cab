"""`stagewatch inspect`: one look at the ranks of this node, with a verdict for each job.

`command` looks for a few seconds, has the ranks judged and prints the `table`; `evidence` adds
their stacks.  With --prometheus, `story` describes a whole job instead.  `explain` says why the
judge decided a case as it did: `rows` and `reasons` are its parts.  Open `command` first.
"""
