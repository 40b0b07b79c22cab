"""Where a job's step went: replays its operations without one cause of loss after the other.

`tables` reads operations of a pipeline profiler, `recorded` a file of `stagewatch trace`; `replay`
plays them again with other durations; `losses` says what each cause takes.  Open `losses` first.
"""
