#!/bin/sh
# Runs `stagewatch ARGUMENTS` as the user `stagewatch`, whoever starts the container.
#
# An engine gives added capabilities to root alone.  So the node agent's container starts as root,
# makes what systemd-tmpfiles makes elsewhere, and goes on as `stagewatch` with no more than the three
# capabilities of the systemd unit; see deploy/systemd/stagewatch-node.service.
set -eu

[ "$(id -u)" = 0 ] || exec stagewatch "$@"

run=/run/stagewatch
# Root writes below it, so nobody else may put a link there, nor may one be left from before that.
install -d -m 0755 -o root -g root $run
for name in ranks faults jobs; do if [ -h $run/$name ]; then rm $run/$name; fi; done
install -d -m 1777 -o stagewatch -g stagewatch $run/ranks
install -d -m 0775 -o stagewatch -g stagewatch $run/faults
install -d -m 0755 $run/jobs

# A container without them (no cap_add) sees its own user's processes only.
wanted=-all
held=$(sed -n 's/^CapEff:\t*//p' /proc/self/status)
if [ $((0x$held >> 2 & 1)) = 1 ]; then wanted=$wanted,+dac_read_search; fi
if [ $((0x$held >> 19 & 1)) = 1 ]; then wanted=$wanted,+sys_ptrace; fi
if [ $((0x$held >> 34 & 1)) = 1 ]; then wanted=$wanted,+syslog; fi

# The statistics of the node's NFS mounts can be opened by root alone (fs/proc/base.c gives
# /proc/<pid>/mountstats the mode 0400), and then read by whoever holds the descriptor.
if [ -r /proc/1/mountstats ]; then
    exec 3</proc/1/mountstats
    export STAGEWATCH_COLLECTOR_NFS_DESCRIPTOR=3
fi
exec setpriv --reuid=stagewatch --regid=stagewatch --init-groups --no-new-privs \
    "--inh-caps=$wanted" "--ambient-caps=$wanted" stagewatch "$@"
