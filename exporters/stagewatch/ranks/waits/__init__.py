"""What processes of this node wait for, as the kernel tells it, and who holds the other end.

`look` is the agent's side: `Waits.look(pids)` asks the `child`, which takes two looks some seconds
apart and follows whom the processes wait for, three steps at most.  `threads` reads the system call
that each thread is in (`system_calls` has their tables), `edges` finds the other end: one file for
each source (`pipes`, `unix_sockets`, `tcp`, `events`, `several` for poll and epoll, `futexes`,
`children`, `file_locks`, `storage`).  `holders` knows which process has which descriptor open.

`model` is what comes out of it, and JSON both ways; `ends` tells which waits of a process say why
it does not go on.  `busy` samples where threads run that do not wait, and `blocking_calls` reads
from a Python stack what kind of call a thread is in.  Nothing here knows of verdicts.  Open `model`
first, then `child`.
"""
