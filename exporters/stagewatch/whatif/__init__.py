"""Where the time of a job's step went: replays its operations, taking away one cause of loss after
the other.

`recorded` reads the operations of a file of `stagewatch trace`.  `replay` plays them again with
other durations; `losses` computes the share of every cause.  Open `losses` first.
"""
