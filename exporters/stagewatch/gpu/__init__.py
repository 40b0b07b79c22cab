"""The GPUs of this node: readings, errors and Slurm jobs.

A child process calls the NVIDIA driver (`nvml`), since a driver call may never return. `reader`
asks the child with a deadline, and `collector` turns its frames into the metrics that `readings`
declares: open these two first. `directory` holds the last readings, from which `jobs` finds the job
of every GPU; `history` holds ten minutes of them for the status page. `xids` is the ledger of GPU
errors, shared with the kernel log. `recording` replays frames if there is no GPU.
"""
