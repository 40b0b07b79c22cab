"""The agent's privileges, kept away from the process that listens.

`keeper` is the agent's connection to a process that has three capabilities: systemd starts that as
a unit of its own, or else the agent was given them and has a child take them over before there is a
socket or a thread.  That process (`keeper_child`) owns no socket that others reach; it starts what
has to look at processes of other users from a list that was made before, each with no more system
calls than `seccomp` lets it have.  `capabilities` speaks to the kernel.  Open `keeper` first.
"""
