"""The node's own files, read for any subject: processes, control groups and mounts.

Every reader returns nothing rather than raise for what is gone or hidden, since processes end at
any moment.  A reader that only one subject needs stands in that subject's room.  What may never
answer is read by a child (`guarded`, `guarded_child`).  Open `procfs.py` first.
"""
