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
if [ -z "$NCCL_PROFILER_PLUGIN" ] && [ -f "$plugin" ] && [ "${STAGEWATCH_OFF:-}" != 1 ]; then
    printf 'export NCCL_PROFILER_PLUGIN=%s\n' "$plugin"
fi

# A pipe by which the agent may ask PyTorch's flight recorder for the latest collectives, unless the user has said how.  The directory, where a site has made it, lets the agent's user
# in; PyTorch ends its watchdog where it can make no pipe.
if [ -z "${TORCH_NCCL_DEBUG_INFO_PIPE_FILE+set}" ] && [ "${STAGEWATCH_OFF:-}" != 1 ]; then
    directory=/run/stagewatch/recorder
    { [ -d "$directory" ] && [ -w "$directory" ]; } || directory=/tmp
    token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
    printf 'export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=%s\n' \
        "$directory/stagewatch-fr-${SLURM_JOB_ID:-0}-$token-"
fi
