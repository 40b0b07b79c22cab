"""Says why a job died: the first cause, by its class, its rank, its node and its first line.

`lines` knows what a line of a log, or an exception, means; `log` reads logs into causes; `causes`
picks the one that the others follow from; `command` tells.  Open `causes` first: `stagewatch run`
takes it too, over what it has seen of the processes.
"""
