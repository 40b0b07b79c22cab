"""Agents with the user, capabilities and limits of the shipped files, and ranks of other users.

No systemd, engine or cluster is needed: what those would set is parsed out of the unit,
compose.yaml and the manifest, and set by setpriv(1) and prlimit(1) in a mount namespace in which
the agent's user exists and may read the interpreter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests import unit_filter
from tests.deploy.engine import ROOT, need
from tests.node_agent import NodeAgent
from tests.running import clean_environ
from tests.waiting import wait_for

_UNITS = ROOT / "deploy" / "systemd"
_ENTRYPOINT = "deploy/docker/entrypoint.sh"
_LIMITS = {"LimitNOFILE": "nofile", "LimitCORE": "core", "LimitNPROC": "nproc", "TasksMax": "nproc"}

# What lies in a home directory that is closed to others, such as the interpreter, moves out of it.
_NAMESPACE = """
set -eu
scratch=$1 interpreter=$2 checkout=$3
shift 3
for file in passwd group; do
    if [ -e "$scratch/$file" ]; then mount --bind "$scratch/$file" "/etc/$file"; fi
done
if [ "$1" = container ]; then mount -t tmpfs -o mode=755 none /run; fi
shift
mkdir -p "$scratch/interpreter" "$scratch/checkout"
mount --rbind "$interpreter" "$scratch/interpreter"
mount --rbind "$checkout" "$scratch/checkout"
case $interpreter$checkout in */root/*) mount -t tmpfs -o mode=755 none /root ;; esac
mkdir -p "$interpreter" "$checkout"
mount --rbind "$scratch/interpreter" "$interpreter"
mount --rbind "$scratch/checkout" "$checkout"
exec "$@"
"""


HOLDS = """
import os, pwd, select, socket, sys
path, user, mode, *command = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
os.chown(path, pwd.getpwnam(user).pw_uid, -1)
os.chmod(path, int(mode, 8))
listener.listen()
while True:
    select.select([listener], [], [])
    service = os.fork()
    if service == 0:
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        os.execvp(command[0], command)
    os.waitpid(service, 0)
"""
"""Holds a socket and starts a service when somebody connects, as systemd does."""


@dataclass(frozen=True)
class Installation:
    """How one of the shipped files has the node agent started."""

    name: str
    user: str
    command: tuple[str, ...]
    """What sets the rest, then the agent with its arguments."""
    environ: dict[str, str] = field(default_factory=dict)
    container: bool = False
    keeper: tuple[str, ...] = ()
    """The same of the unit that keeps the privileges, behind its socket's user and mode."""


def _capabilities(text: str) -> str:
    """CAP_SYSLOG CAP_SYS_PTRACE, as setpriv takes them."""
    names = [name.removeprefix("CAP_").lower() for name in text.split()]
    return ",".join(["-all", *(f"+{name}" for name in names)])


def unit(name: str) -> dict[str, str]:
    """What a unit sets; what it sets several times, a line each."""
    told: dict[str, str] = {}
    for line in (_UNITS / name).read_text().splitlines():
        key, is_set, value = line.partition("=")
        if is_set and not key.startswith("#"):
            told[key] = f"{told[key]}\n{value}" if key in told else value
    return told


def _service(name: str) -> tuple[str, ...]:
    """The command of a unit with the user, capabilities, limits and system calls that it sets."""
    set_to = unit(name)
    ambient = _capabilities(set_to.get("AmbientCapabilities", ""))
    command = ["setpriv", f"--reuid={set_to['User']}", f"--regid={set_to['Group']}"]
    command += ["--init-groups", f"--bounding-set={_capabilities(set_to['CapabilityBoundingSet'])}"]
    command += [f"--inh-caps={ambient}", f"--ambient-caps={ambient}"]
    if set_to.get("NoNewPrivileges") == "yes":
        command.append("--no-new-privs")
    limits = [f"--{_LIMITS[name]}={value}" for name, value in set_to.items() if name in _LIMITS]
    if limits:
        command = ["prlimit", *limits, *command]
    if unit_filter.available():
        filters = set_to["SystemCallFilter"]
        command += [sys.executable, "-m", "tests.unit_filter", filters]
    return (*command, sys.executable, "-m", "stagewatch.cli", *set_to["ExecStart"].split()[1:])


def systemd() -> Installation:
    """By the units."""
    agent, keeper = "stagewatch-node.service", "stagewatch-keeper.service"
    assert unit(agent)["User"] == unit(keeper)["User"]
    held = unit("stagewatch-keeper.socket")
    assert f"--keeper={held['ListenSequentialPacket']}" in unit(agent)["ExecStart"].split()
    behind = (held["SocketUser"], held["SocketMode"], *_service(keeper))
    return Installation("systemd", unit(agent)["User"], _service(agent), keeper=behind)


def _container(
    name: str, user: object, added: Sequence[str], arguments: Sequence[str], environ: dict[str, str]
) -> Installation:
    """An engine starts the entry point as this user, and bounds what it may do."""
    assert user in ("root", 0), "an engine gives capabilities to root alone"
    bounds = _capabilities(" ".join(added))
    # Root's permitted ones are all that are in the bounding set, as an engine has it.
    command = ("setpriv", f"--bounding-set={bounds}", "--no-new-privs", f"{ROOT}/{_ENTRYPOINT}")
    return Installation(name, "stagewatch", (*command, *arguments), environ, container=True)


def compose() -> Installation:
    """By compose.yaml."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["node"]
    assert service["cap_drop"] == ["ALL"]
    return _container("compose", service["user"], service["cap_add"], service["command"], {})


def kubernetes() -> Installation:
    """By the manifest of the DaemonSet."""
    manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "node.yaml").read_text())
    [daemon] = [one for one in manifests if one["kind"] == "DaemonSet"]
    [agent] = daemon["spec"]["template"]["spec"]["containers"]
    context = agent["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"] and not context["allowPrivilegeEscalation"]
    added = context["capabilities"]["add"]
    return _container("kubernetes", context["runAsUser"], added, agent["args"], {})


INSTALLATIONS = {"systemd": systemd, "compose": compose, "kubernetes": kubernetes}


def need_users() -> None:
    """Skip where processes cannot be started as other users."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: processes of several users")
    need("unshare", "setpriv", "prlimit", "mount")
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs a mount namespace: {done.stderr.decode()}")


def in_namespace(scratch: Path, *command: str, container: bool = False) -> list[str]:
    """A command for which the interpreter and the checkout lie where any user may read them."""
    kind = "container" if container else "host"
    where = (str(scratch), sys.base_prefix, str(ROOT), kind)
    return ["unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", *where, *command]


def as_user(scratch: Path, uid: int, *command: str) -> list[str]:
    """A command of another user, who has no privileges."""
    scratch.mkdir(exist_ok=True)
    whose = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return in_namespace(scratch, "setpriv", *whose, "--pdeathsig=KILL", *command)


def start(
    installation: Installation,
    agent: NodeAgent,
    children: Children,
    uid: int,
    *around: str,
    **environ: str,
) -> None:
    """Start an agent as installed, with this number for its user, and wait until it answers;
    `around`: what enters another node."""
    scratch = agent.directory
    _introduce(installation.user, scratch, uid)
    for path in (scratch, agent.ranks, agent.faults):
        path.chmod(0o1777)
    reached = []
    if installation.keeper:
        hold_socket(installation, scratch, children, *around)
        reached = ["--keeper", str(scratch / "keeper")]
    agent.port = free_port()
    command = in_namespace(
        scratch,
        *installation.command,
        *("--listen", f"127.0.0.1:{agent.port}"),
        *reached,
        *agent.arguments,
        container=installation.container,
    )
    agent.process = children.start(
        [*around, *command], log=agent.log, environ=_environ() | installation.environ | environ
    )
    wait_for(agent.healthy, "the agent answers")


def confined(unit_name: str, scratch: Path, uid: int, *command: str) -> list[str]:
    """A command under the user, capabilities, limits and system calls of a unit; the number is
    its user's, who may write to `scratch`."""
    scratch.chmod(0o1777)
    _introduce(unit(unit_name)["User"], scratch, uid)
    bounds = _service(unit_name)
    return in_namespace(scratch, *bounds[: bounds.index("stagewatch.cli") - 2], *command)


def _introduce(user: str, scratch: Path, uid: int) -> None:
    """Write the users and groups of the namespace."""
    for name, line in {"passwd": f"{uid}:{uid}::/:/bin/false", "group": f"{uid}:"}.items():
        known = [
            line
            for line in Path("/etc", name).read_text().splitlines()
            if not line.startswith(f"{user}:")
        ]
        (scratch / name).write_text("\n".join([*known, f"{user}:x:{line}", ""]))


def hold_socket(
    installation: Installation, scratch: Path, children: Children, *around: str
) -> None:
    """Hold the keeper's socket; who connects to it has the keeper started."""
    held = [sys.executable, "-c", HOLDS, str(scratch / "keeper"), *installation.keeper]
    log = scratch / "keeper.log"
    children.start([*around, *in_namespace(scratch, *held)], log=log, environ=_environ())
    wait_for((scratch / "keeper").exists, "the socket of the keeper")


def _environ() -> dict[str, str]:
    return clean_environ({"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})


def status(pid: int, task: int | None = None) -> dict[str, str]:
    """`/proc/<pid>/status` of a process, or of a thread."""
    text = Path(f"/proc/{pid}/task/{task or pid}/status").read_text()
    return dict(re.findall(r"^(\w+):\t(.*)$", text, re.MULTILINE))
