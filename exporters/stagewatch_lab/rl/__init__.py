"""A small RL training system of real processes, for faults to be injected into.

One controller, a MetaServer, train and rollout workers and a scheduler's API talk HTTP and write
real checkpoints.  What they say of themselves goes through the public client alone.
"""
