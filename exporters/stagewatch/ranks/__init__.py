"""The ranks of this node: the processes of a training job, what they record and what they do.

Records (`record_directory`, `records`) and launchers' variables (`environment_scan`) show which
processes are ranks; `directory` joins both, and `families` adds the processes that ranks have
started.  The collectors read from these two: `stages`, `activity` (with `wait_class`), `work`,
`io`, `processes`, `blocked_tasks`, `sockets` (with `flows` and `socket_diag`), `census`;
`family_io` and `held_sockets` are read by several of them.  Open `directory` first.

Other subjects attribute what they show to ranks by `RankDirectory.ranks` and
`ProcessFamilies.look`, which their context hands them; both speak in the names of `model`.
`verdict` and `faults` read the directory itself, and `verdict` also the wait class and `stacks`,
which has py-spy look at ranks from a child of its own.  `waits` asks the kernel what the processes
of a suspected job wait for, and who holds the other end.
"""
