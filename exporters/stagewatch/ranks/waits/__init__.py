"""What processes of this node wait for, as the kernel shows it, and who holds the other end.

`look` is the agent's side: `Waits` asks the `child`, which takes two looks some seconds apart and
follows the waits of processes, three steps at most.  `threads` reads the system call of each thread
(`system_calls` has their tables), `edges` finds the other end, with one file for each source:
`pipes`, `unix_sockets`, `tcp`, `events`, `several` for poll and epoll, `futexes`, `children`,
`file_locks`, `storage`.  `holders` knows which process has which descriptor open.

`model` has the answer, and its JSON; `ends` selects the waits that explain why a process does not
go on.  `blocking_calls` finds the blocking call in a Python stack.  Nothing here knows of verdicts.
Open `model` first, then `child`."""
