#!/bin/sh
# Slurm prolog: writes down which GPUs of this node a job was given, for the node agent's
# gpu_job_info.  Run by slurmd as root; see prolog.md for how to install it.
#
# It must never keep a job from starting: whatever goes wrong, it ends with 0 and the agent finds
# out by other means.
export PATH=/usr/bin:/bin
umask 022

directory=${STAGEWATCH_JOBS_DIR:-/run/stagewatch/jobs}

case $SLURM_JOB_ID in
    '' | *[!0-9]*) exit 0 ;;
esac
mkdir -p "$directory" 2>/dev/null || exit 0
# Root follows no link of somebody else's: the directory and the one above are root's own.
mine() { [ ! -h "$1" ] && [ "$(stat -c %u "$1")" = "$(id -u)" ]; }
mine "$directory" && mine "$(dirname "$directory")" || exit 0
: > "$directory/.in-use" || exit 0

# Only a list of MIG instances or GPUs by UUID says more than the numbers.
devices=
case ${CUDA_VISIBLE_DEVICES:-} in
    GPU-* | MIG-*) devices=$CUDA_VISIBLE_DEVICES ;;
esac

new=$directory/.$SLURM_JOB_ID.new
{
    printf 'user=%s\n' "$(printf %s "${SLURM_JOB_USER:-}" | tr -d '\n')"
    printf 'gpus=%s\n' "$(printf %s "${SLURM_JOB_GPUS:-}" | tr -cd '0-9,-')"
    printf 'devices=%s\n' "$(printf %s "$devices" | tr -cd 'A-Za-z0-9,-')"
    printf 'started=%s\n' "$(date +%s)"
} > "$new" 2>/dev/null && mv -f "$new" "$directory/$SLURM_JOB_ID"
exit 0
