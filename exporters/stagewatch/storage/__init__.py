"""Storage as this node sees it: mounts and checkpoints.

`nfs` reads the kernel's counters of NFS mounts and touches none.  `canary` and `checkpoints` touch
mounts, so their work runs in the helper process (`canary_child`, `checkpoint_child`) and may hang
there.  Open `nfs` first.
"""
