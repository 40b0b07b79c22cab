#!/bin/sh
# What the packages do beside putting files in place; build.sh adds a line that says when.
# shellcheck disable=SC2012,SC2086 # one word a unit
set -eu
faults=/var/lib/stagewatch-faults
home=/opt/stagewatch

running() { [ -d /run/systemd/system ]; }

before_installing() {
    [ ! -e $home/bin/pip ] || {
        echo "stagewatch was installed from a checkout: deploy/install.sh --uninstall first" >&2
        exit 1
    }
}

installed() {
    systemd-sysusers stagewatch.conf
    systemd-tmpfiles --create stagewatch.conf || true # in an image without /proc: when it boots
    # The system's Python may be too old where a newer one stands beside it, as on RHEL 9.
    for python in python3 python3.13 python3.12 python3.11 python3.10; do
        ln -sfn "/usr/bin/$python" $home/bin/python
        $home/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && break
    done
    $home/bin/python -m compileall -q $home/lib/python3 || true # only makes starting faster
    running || return 0
    systemctl daemon-reload
    systemctl try-restart 'stagewatch-*.service' # those that run, after an upgrade
}

before_removing() {
    # What is written there can only be undone by what would be removed.
    for undo in $faults/*.undo; do
        [ -e "$undo" ] || continue
        echo "stagewatch: faults are in force: end them by stagewatch fault clear --all" >&2
        exit 1
    done
    units=$(cd /usr/lib/systemd/system && ls -d ./*stagewatch* | cut -c 3-)
    now=
    ! running || now=--now
    ! command -v systemctl >/dev/null || systemctl --quiet disable $now $units
    forget_compiled
}

forget_compiled() { find $home/lib -type d -name __pycache__ -exec rm -rf {} +; }

removed() {
    rm -rf $home
    rm -rf /run/stagewatch || true # ranks may keep records there
    ! running || systemctl daemon-reload
}

purged() { rm -rf /etc/stagewatch /var/lib/stagewatch $faults; }

