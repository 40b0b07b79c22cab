"""The collectors of the Slurm agent, one file for each subject.

Each counts the answers of one or two sources of the cluster (cluster.py), which all of them share.
`refresh` gives the data that a collector is about, `keep_fresh` what it needs beside; so each works
with all the others switched off.  Open queue.py first.
"""
