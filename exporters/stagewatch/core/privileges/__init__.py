"""What the agent may do beyond its user, and how little of it is left once it listens.

systemd or an engine starts the node agent with three capabilities.  `keeper` has a child take them
over before there is a socket or a thread, and gives them up for good in the agent itself.  That
child (`keeper_child`) owns no socket that others reach; it starts what has to look at processes of
other users from a list that was made before, each with no more system calls than `seccomp` lets it
have.  `capabilities` speaks to the kernel.  Open `keeper` first.
"""
