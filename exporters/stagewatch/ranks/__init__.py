"""The ranks of this node: the processes of a training job, what they record and what they do.

Records (`record_directory`, `records`) and launchers' variables (`environment_scan`) show which
processes are ranks; `directory` joins both, and `families` adds the processes that ranks have
started.  The collectors read these two: `stages`, `activity` (with `wait_class`), `work`, `io`,
`processes`, `blocked_tasks`, `sockets` (with `flows` and `socket_diag`), `census`; several of them
also read `family_io` and `held_sockets`.  Open `directory` first.

Other subjects attribute their series to ranks by `RankDirectory.ranks` and `ProcessFamilies.look`,
which their context gives them; both use the names in `model`.  Only the rooms that judge, and
`faults`, read the directory itself.  In `stacks`, a child has py-spy take the stacks of ranks;
`waits` asks the kernel what the processes of a suspected job wait for, and who holds the other end.
"""
