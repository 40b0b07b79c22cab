#!/bin/sh
# Usage: deploy/install.sh [--no-start] node|slurm|judge ...
#        deploy/install.sh --uninstall [--purge]
# Installs agents and the judge from a checkout as services of systemd.  Running it again
# upgrades and keeps /etc/stagewatch.  --no-start leaves starting to you.  --uninstall removes all
# but /etc/stagewatch, /var/lib/stagewatch and /var/lib/stagewatch-faults, --purge these too.  The
# user and group stagewatch stay either way: files elsewhere may be theirs.
# Needs root, Python 3.10 or newer with venv ($PYTHON, else /usr/bin/python3), a package index.
set -eu

usage() { sed -n '2,8s/^# //p' "$0"; }
wrong() { echo "install: $1" >&2; usage >&2; exit 2; }

prefix=/opt/stagewatch
units=/etc/systemd/system
faults=/var/lib/stagewatch-faults
mount=run-stagewatch-ranks.mount
port=stagewatch-node.socket
keeper="stagewatch-keeper.socket stagewatch-keeper.service" # has the node agent's privileges
agents=
uninstall=
purge=
start=yes
for argument in "$@"; do
    case $argument in
        node | slurm | judge) agents="$agents $argument" ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        --no-start) start= ;;
        -h | --help) usage; exit 0 ;;
        *) wrong "unknown argument $argument" ;;
    esac
done
if [ "$uninstall" ]; then
    [ -z "$agents" ] || wrong "--uninstall removes every agent; name none"
else
    [ -z "$purge" ] || wrong "--purge goes with --uninstall"
    [ "$agents" ] || wrong "name an agent or several: node, slurm, judge"
fi
[ "$(id -u)" = 0 ] || { echo "install: must run as root" >&2; exit 2; }
cd "$(dirname "$0")/.."

# systemctl only where systemd runs: images are built without it.
running() { [ -d /run/systemd/system ]; }

# The records of ranks get memory of their own, unless that would hide some that are in use.
own_memory() {
    systemctl enable $mount
    if [ "$(ls -A /run/stagewatch/ranks)" ] && ! systemctl --quiet is-active $mount; then
        echo "install: ranks keep records now: /run/stagewatch/ranks is limited from the next boot on"
        return
    fi
    systemctl start $mount || echo "install: /run/stagewatch/ranks has no limit of its own" >&2
    systemd-tmpfiles --create stagewatch.conf # whose the new directory is
}
reload() { if running; then systemctl daemon-reload; fi; }

if [ "$uninstall" ]; then
    # What is written there can only be undone by what would be removed.
    for undo in $faults/*.undo; do
        [ -e "$undo" ] || continue
        echo "install: faults are in force or not undone ($undo); nothing was removed." >&2
        echo "install: end them first: stagewatch fault clear --all" >&2
        exit 1
    done
    for unit in $port stagewatch-node.service $keeper stagewatch-slurm.service stagewatch-judge.service; do
        [ -e $units/$unit ] || continue
        if running; then systemctl disable --now $unit; fi
        rm $units/$unit
    done
    if [ -e $units/$mount ]; then
        if running; then systemctl disable --now $mount || umount --lazy /run/stagewatch/ranks; fi
        rm $units/$mount
    fi
    rm -rf $prefix /usr/local/bin/stagewatch /run/stagewatch
    rm -f /usr/lib/sysusers.d/stagewatch.conf /usr/lib/tmpfiles.d/stagewatch.conf
    [ -z "$purge" ] || rm -rf /etc/stagewatch /var/lib/stagewatch $faults
    reload
    echo "stagewatch is removed; its user and group stay (userdel stagewatch)"
    exit 0
fi

# The system's own Python: the agents' user may not be able to read one in root's home.
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "install: needs Python 3.10 or newer with venv (apt-get install python3-venv)" >&2
    exit 2
fi
if ! command -v systemd-sysusers >/dev/null || ! command -v systemd-tmpfiles >/dev/null; then
    echo "install: needs systemd-sysusers and systemd-tmpfiles, see docs/install.md" >&2
    exit 2
fi

[ -x $prefix/bin/python ] || "$python" -m venv $prefix
pip="$prefix/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes -r deploy/requirements.lock
$pip install --no-deps --force-reinstall .
install -D -m 644 README.md $prefix/share/README.md
install -D -m 755 -t $prefix/share/slurm deploy/slurm/*.sh
install -D -m 644 -t $prefix/share/slurm deploy/slurm/*.conf deploy/slurm/*.md
ln -sf $prefix/bin/stagewatch /usr/local/bin/stagewatch

install -D -m 644 deploy/systemd/stagewatch.sysusers.conf /usr/lib/sysusers.d/stagewatch.conf
install -D -m 644 deploy/systemd/stagewatch.tmpfiles.conf /usr/lib/tmpfiles.d/stagewatch.conf
systemd-sysusers stagewatch.conf
systemd-tmpfiles --create stagewatch.conf
for agent in $agents; do
    unit=stagewatch-$agent.service
    [ -e "/etc/stagewatch/$agent.env" ] ||
        install -D -m 644 "deploy/systemd/$agent.env" "/etc/stagewatch/$agent.env"
    install -D -m 644 "deploy/systemd/$unit" "$units/$unit"
    if [ $agent = node ]; then
        for more in $mount $port $keeper; do install -m 644 "deploy/systemd/$more" $units; done
    fi
    reload
    if running && [ "$start" ] && [ $agent = node ]; then own_memory; fi
    if running && [ "$start" ]; then
        systemctl enable "$unit"
        systemctl restart "$unit"
    fi
done
echo "stagewatch is installed; options are in /etc/stagewatch"
if running && [ "$start" ]; then exit 0; fi

running || echo "systemd does not run here."
echo "Nothing was started.  Under systemd:"
for agent in $agents; do echo "  systemctl enable --now stagewatch-$agent"; done
echo "Without it, by hand (once after each boot, first: systemd-tmpfiles --create stagewatch.conf):"
for agent in $agents; do
    as="setpriv --reuid=stagewatch --regid=stagewatch --init-groups"
    held=-all
    [ "$agent" != node ] || held=$held,+sys_ptrace,+dac_read_search,+syslog # those of the unit
    as="$as --inh-caps=$held --ambient-caps=$held"
    echo "  sh -c 'set -a; . /etc/stagewatch/$agent.env; exec $as stagewatch $agent'"
done
