"""The GPUs of this node: readings, errors, and the Slurm job of each.

A child process asks the NVIDIA driver (`nvml`), since a call of the driver may never return;
`reader` asks the child with a deadline, and `collector` turns its frames into the metrics that
`readings` declares: open these two first.  What the collector saw last stands in `directory`, from
which `jobs` tells the job of each GPU, and what it saw in ten minutes in `history`, for the status
page; `xids` is the ledger of GPU errors, shared with the kernel log; `recording` replays frames
where there is no GPU.
"""
