#!/bin/sh
# TaskProlog of slurm.conf: watches every task of every job as `stagewatch run` does.  slurmd adds the
# line that this prints to the environment of the task; a user opts out by STAGEWATCH_OFF=1.  Run as
# the user of the job.
home=${0%/share/slurm/*}
for loader in "$home"/lib/python3*/site-packages/stagewatch/client/loader; do
    [ -d "$loader" ] || continue
    printf 'export PYTHONPATH=%s\n' "$loader${PYTHONPATH:+:$PYTHONPATH}"
    break
done
# NCCL loads one profiler plugin: ours, where a site has put it there and the job has none of its own.
plugin=$home/lib/libnccl-profiler-stagewatch.so
if [ -z "$NCCL_PROFILER_PLUGIN" ] && [ -f "$plugin" ] && [ -z "$STAGEWATCH_OFF" ]; then
    printf 'export NCCL_PROFILER_PLUGIN=%s\n' "$plugin"
fi
