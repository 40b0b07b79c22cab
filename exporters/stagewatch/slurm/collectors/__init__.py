"""The collectors of the Slurm agent, one file for each subject.

A collector counts the answers of one or two sources of the cluster (cluster.py), which all
collectors share.  It calls `refresh` for its main data and `keep_fresh` for the rest, so it works
alone.  Open queue.py first.
"""
