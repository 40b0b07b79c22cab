#!/bin/sh
# Slurm epilog: takes back what prolog.sh wrote.  Run by slurmd as root; never fails.
export PATH=/usr/bin:/bin

directory=${STAGEWATCH_JOBS_DIR:-/run/stagewatch/jobs}

case $SLURM_JOB_ID in
    '' | *[!0-9]*) exit 0 ;;
esac
[ ! -h "$directory" ] || exit 0 # root follows no link of somebody else's
rm -f "$directory/$SLURM_JOB_ID" "$directory/.$SLURM_JOB_ID.new" 2>/dev/null
rm -f "/tmp/stagewatch-fr-$SLURM_JOB_ID-"*.pipe \
    "/run/stagewatch/recorder/stagewatch-fr-$SLURM_JOB_ID-"*.pipe 2>/dev/null
exit 0
