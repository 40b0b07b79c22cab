"""Reads the kernel's files about processes, control groups and mounts, for any collector.

A reader returns nothing for a process that is gone or hidden, rather than raise: processes end at
any moment.  A reader that only one subject needs is in that subject's room.  A child reads the
files that may never answer (`guarded`, `guarded_child`).  Open `procfs.py` first.
"""
