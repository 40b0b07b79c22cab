"""Storage as this node sees it: mounts, disks, checkpoints.

`nfs` reads the kernel's counters of NFS mounts, `io` those of disks and pressure; neither touches a
mount.  `canary` and `checkpoints` touch mounts, so their work runs in the helper process
(`canary_child`, `checkpoint_child`) and may hang there.  Open `nfs` first.
"""
