#!/bin/sh
# HealthCheckProgram of slurm.conf: drains a node that `stagewatch check` finds unfit, with its
# reason.  Never resumes one: that is for a person.  Run by slurmd as root with hardly any
# environment.
export PATH="${STAGEWATCH_PATH:-/usr/local/bin:/usr/bin:/bin}"

node=${SLURMD_NODENAME:-$(hostname -s)}
reason=$(stagewatch check 2>&1)
[ $? -eq 2 ] || exit 0
case $(scontrol --oneliner show node "$node") in
    *DRAIN*) exit 0 ;; # keep the first reason, and who gave it
esac
exec scontrol update nodename="$node" state=drain reason="stagewatch: $reason"
