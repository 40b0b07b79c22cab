"""The profiler plugin for NCCL and its reader, with a program that calls it as NCCL does."""
