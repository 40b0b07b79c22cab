"""Child processes for calls that may never return: the driver, a dead mount, a silent server.

`supervisor` keeps one child: it asks with a deadline, kills once, and starts no second child while
the first has not been reaped.  `helper` is the agent's side of the one process that runs the
blocking jobs of all collectors; `worker` is what runs in that process, with the standard library
only.  Open `supervisor` first.
"""
