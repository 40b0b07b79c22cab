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
[ "${STAGEWATCH_OFF:-}" != 1 ] || exit 0

# NCCL loads one profiler plugin: one that a site has put there, ours or else NCCL Inspector, where
# the job has none of its own.
ours=$home/lib/libnccl-profiler-stagewatch.so
inspector=$home/lib/libnccl-profiler-inspector.so
if [ -z "$NCCL_PROFILER_PLUGIN" ] && [ -f "$ours" ]; then
    printf 'export NCCL_PROFILER_PLUGIN=%s\n' "$ours"
elif [ -z "$NCCL_PROFILER_PLUGIN" ] && [ -f "$inspector" ]; then
    printf 'export %s\n' "NCCL_PROFILER_PLUGIN=$inspector" \
        NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_PROM_DUMP=1 \
        NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=30000000 \
        NCCL_INSPECTOR_DUMP_DIR=/run/stagewatch/nccl
fi

# A port of the job's own for NCCL's RAS, on all of its nodes: on the usual one another job may listen.
[ -n "${NCCL_RAS_ADDR+set}${NCCL_RAS_ENABLE+set}" ] ||
    printf 'export NCCL_RAS_ADDR=localhost:%s\n' $((28029 + ${SLURM_JOB_ID:-0} % 1000))

# A pipe by which the agent may ask PyTorch's flight recorder for the latest collectives, unless the
# user has said how.  The directory, where a site has made it, lets the agent's user in; PyTorch ends
# its watchdog where it can make no pipe.
if [ -z "${TORCH_NCCL_DEBUG_INFO_PIPE_FILE+set}" ]; then
    directory=/run/stagewatch/recorder
    { [ -d "$directory" ] && [ -w "$directory" ]; } || directory=/tmp
    token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
    printf 'export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=%s\n' \
        "$directory/stagewatch-fr-${SLURM_JOB_ID:-0}-$token-"
fi
