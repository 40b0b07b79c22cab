"""What is done with a verdict: proof for whoever repairs a node, and a line to the job's owner.

A proposal (`judgement.hardware`) becomes another's protocol in `forms`, or a mark at the node of a
`site` (`slurm`, `kubernetes`), within the limits that `site` holds; `command` is `stagewatch act`,
`collector` the judge's part.  `message` has the line to the owner and how it is sent, `owner` when.
Open `site` first.
"""
