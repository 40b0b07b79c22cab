#!/bin/sh
# Installs the agents on a machine with systemd: `deploy/install.sh [node] [slurm]`, from a checkout.
# Running it again upgrades and keeps /etc/stagewatch.  `--uninstall` removes all but that and
# /var/lib/stagewatch; `--uninstall --purge` those too.  `--no-start` leaves starting to you.
# Needs root, Python 3.10 or newer with venv ($PYTHON, else /usr/bin/python3), a package index.
set -eu

usage() { sed -n '2,5s/^# //p' "$0"; }

prefix=/opt/stagewatch
units=/etc/systemd/system
agents=
uninstall=
purge=
start=yes
for argument in "$@"; do
    case $argument in
        node | slurm) agents="$agents $argument" ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        --no-start) start= ;;
        -h | --help) usage; exit 0 ;;
        *) echo "install: unknown argument $argument" >&2; usage >&2; exit 2 ;;
    esac
done
[ "$(id -u)" = 0 ] || { echo "install: must run as root" >&2; exit 2; }
cd "$(dirname "$0")/.."

# systemctl only where systemd runs: images are built without it.
running() { [ -d /run/systemd/system ]; }
reload() { if running; then systemctl daemon-reload; fi; }

if [ "$uninstall" ]; then
    for agent in node slurm; do
        unit=stagewatch-$agent.service
        [ -e $units/$unit ] || continue
        if running; then systemctl disable --now $unit; fi
        rm $units/$unit
    done
    rm -rf $prefix /usr/local/bin/stagewatch /run/stagewatch
    rm -f /usr/lib/sysusers.d/stagewatch.conf /usr/lib/tmpfiles.d/stagewatch.conf
    [ -z "$purge" ] || rm -rf /etc/stagewatch /var/lib/stagewatch
    reload
    echo "stagewatch is removed"
    exit 0
fi

[ "$agents" ] || agents=node
# The system's own Python: the agents' user may not be able to read one in root's home.
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "install: needs Python 3.10 or newer with venv (apt-get install python3-venv)" >&2
    exit 2
fi

[ -x $prefix/bin/python ] || "$python" -m venv $prefix
pip="$prefix/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes -r deploy/requirements.lock
$pip install --no-deps --force-reinstall .
install -D -m 644 README.md $prefix/share/README.md
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
    reload
    if running && [ "$start" ]; then
        systemctl enable "$unit"
        systemctl restart "$unit"
    fi
done
echo "stagewatch is installed; options are in /etc/stagewatch"
