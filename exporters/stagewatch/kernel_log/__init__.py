"""The kernel log of this node: GPU errors (XIDs), out-of-memory kills, NFS servers.

`reader` gives the records of /dev/kmsg, `lines` tells what a record is about, and `collector` (open
it first) counts, names the rank that was hit and keeps the counters over a restart.  GPU errors go
to `stagewatch.gpu.xids`, the ledger that this room shares with the `gpu` collector.
"""
