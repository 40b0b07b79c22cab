#!/bin/sh
# TaskEpilog of slurm.conf: when a batch script has ended, says why the job died, for users who want it
# by STAGEWATCH_DIED=1.  The record lies beside the job's log, LOG.died.json, where the log tells of a
# death.  Run as the user of the job, so that no log is read that is not the user's own to read.
[ "${STAGEWATCH_DIED:-}" = 1 ] || exit 0
case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]*) exit 0 ;;
esac
[ -z "${SLURM_STEP_ID:-}" ] || exit 0 # a step; the batch script has none, and there is one a job
PATH=${0%/share/slurm/*}/bin:$PATH

# The one question to the controller: what a user wrote, as the job's name, stands before the path.
log=$(timeout 10 scontrol --oneliner show job "$SLURM_JOB_ID" | sed -n 's/.* StdOut=\([^ ]*\).*/\1/p')
[ -f "$log" ] || exit 0
if record=$(timeout 60 nice -n 19 stagewatch died --json "$log"); then
    printf '%s\n' "$record" > "$log.died.json"
fi 2>/dev/null
exit 0
