"""What NCCL has open in each communicator of a rank, as our profiler plugin writes it to a file.

`files` finds the files beside the stage records and says whose they are, `layout` takes one apart.
The plugin is the package `stagewatch_nccl`; docs/nccl.md tells what it sees.  Open `layout` first.
"""
