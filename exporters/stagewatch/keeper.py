"""Keep the privileges of the node agent's service, in a unit of its own.

systemd starts it when the agent connects to its socket (stagewatch-keeper.socket), and it ends with
the agent.  It owns no port.  It answers only its own user, and only a closed list of questions: see
docs/securing-the-agents.md.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stagewatch.core.children.start import bare_python
from stagewatch.core.errors import ConfigError
from stagewatch.core.privileges.keeper import encode_children
from stagewatch.node_context import privileged_children


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its flag."""
    parser.add_argument(
        "--proc", type=Path, default=Path("/proc"), metavar="PATH",
        help="mount point of procfs, as the agent has it [default: %(default)s]",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Go on as a process that has imported little, since its children share its memory."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        raise ConfigError("keeper: systemd starts it with a socket; see stagewatch-keeper.socket")
    command = bare_python(
        "stagewatch.core.privileges.keeper_child",
        encode_children(privileged_children(arguments.proc)),
    )
    os.execv(command[0], command)  # noqa: S606
