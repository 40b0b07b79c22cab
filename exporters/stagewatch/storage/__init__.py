"""Storage as this node finds it: mounts, disks, checkpoints.

`nfs` reads the kernel's own counters of NFS mounts and `io` those of disks and pressure:
text from memory, no mount is touched.  `canary` and `checkpoints` touch mounts, so what they ask
runs in the helper process (`canary_child`, `checkpoint_child`) and may hang there.  Open `nfs`
first.
"""
