"""Prints what `NCCL_PROFILER_PLUGIN` should name; builds it first where it is not built."""

from stagewatch_nccl import LIBRARY, build

print(LIBRARY if LIBRARY.exists() else build())
