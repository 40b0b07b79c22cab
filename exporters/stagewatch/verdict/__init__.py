"""`stagewatch inspect`: one look at the ranks of this node, with a verdict for each job.

`facts` looks at every rank for a few seconds, `judge` decides whether a job hangs or has stopped
and which rank is at fault, `table` prints both, and `evidence` adds stacks.  With --prometheus,
`story` tells of a whole job instead, from the recording rules.  Open `judge` first.

`collector` is the agent's: it judges all the time, and takes the stacks of a job once it seems to
hang; `incidents` keeps them in files, which `inspect` reads as well, and `departures` who has left.
`libraries` adds what `nccl_ras` and `flight_recorder` tell of the job.
"""
