"""The kernel log of this node: GPU errors (XIDs), out-of-memory kills, NFS servers.

`reader` reads the records of /dev/kmsg, `lines` parses them, and `collector` (open it first) counts
them, names the rank that was hit and keeps the counters over a restart.  GPU errors go to
`stagewatch.gpu.xids`, the ledger that this room shares with the `gpu` collector.
"""
