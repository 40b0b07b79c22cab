"""Says why a job died: the first cause, by its class, its rank, its node and its first line.

`lines` knows what a line of a log, or an exception, means; `log` reads logs into causes; `causes`
picks the one from which the others follow; `command` prints it.  Open `causes` first: `stagewatch
run` uses it too, with what it has seen of the processes.
"""
