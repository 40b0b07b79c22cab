"""Runs a training command and watches its ranks; no change of code, no agent, no root.

  stagewatch run -- torchrun --nproc_per_node 4 train.py

Every PyTorch process that the command starts records its training steps, checkpoints and
collectives, and the stages of the framework that it imports.  Meanwhile, `stagewatch inspect` in
another terminal says what the ranks do.  STAGEWATCH_OFF=1 switches the recording off.

Signals and the exit status pass through.  At the end, one line on standard error says which rank
failed first, and why.  It is based on the records, the exit statuses, the kernel log if it can be
read, and the job's own log if standard error goes to a file.

exit status: that of the command; 130 after Ctrl-C, 126 or 127 if it cannot be run
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from stagewatch.client._flight_recorder import PIPE
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.died.causes import Cause, Kind, first
from stagewatch.died.log import read, together
from stagewatch.host.procfs import Procfs
from stagewatch.judgement.limits import site_limits
from stagewatch.record import DEFAULT_DIRECTORY
from stagewatch.run.child import end_alike
from stagewatch.run.child import run as run_child
from stagewatch.run.ranks import Ranks

OURS, LIBRARY = "stagewatch_nccl", "libnccl-profiler-stagewatch.so"
INSPECTOR = {
    "NCCL_INSPECTOR_ENABLE": "1",
    "NCCL_INSPECTOR_PROM_DUMP": "1",
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "30000000",
    "NCCL_INSPECTOR_DUMP_DIR": "/run/stagewatch/nccl",
}
"""Prometheus' text, which does not grow, where the agent's collector reads it."""
LOADER = Path(__file__).parents[1] / "client" / "loader"
"""For the `PYTHONPATH` of every process of a job."""
LOGGED_BYTES = 8 << 20
"""Read at most of the log of a command that has failed, before its end: a second's work."""
RAS = "NCCL_RAS_ADDR"
RAS_PORTS = range(28029, 29029)
"""Beyond the usual one, and below those that Linux gives to connections."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch run`."""
    parser.add_argument(
        "--job", default="", metavar="NAME", help="what to call the job; the same on all its nodes"
    )
    parser.add_argument(
        "--nccl",
        default="",
        metavar="PLUGIN",
        help="profiler plugin that NCCL is to load: `stagewatch` (the package stagewatch-nccl), or "
        "the file of NCCL Inspector; see docs/nccl.md for what each costs",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="to run")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    command = arguments.command[arguments.command[:1] == ["--"] :]
    if not command:
        raise ConfigError("run needs a command: stagewatch run -- torchrun ... train.py")
    logging.disable()  # lines would stand among the command's
    records = Path(os.environ.get("STAGEWATCH_DIR") or DEFAULT_DIRECTORY)
    recorder = flight_recorder(os.environ)
    added = {**nccl(arguments.nccl), **ras(os.environ)}
    environ = environment({**os.environ, **added}, arguments.job) | recorder
    bare_seconds = site_limits(arguments).bare_seconds
    ranks = Ranks(records, Procfs(), tell=_teller(), bare_seconds=bare_seconds)
    try:
        written = _written()
        status = run_child(command, environ, ranks.look)
        _say(ranks.story(status, _logged(written) if status and written is not None else None))
        if ranks.interrupted(status):
            status = signal.SIGINT  # so that shells stop as well, whatever a launcher exits with
    except OSError as error:
        print(f"stagewatch: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    finally:
        ranks.close()
        _remove_pipes(recorder.get(PIPE))
    return end_alike(status)


def _written() -> int | None:
    """Bytes in the file that standard error goes to; `None` where that is no file."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _logged(since: int) -> Cause | None:
    """What the command has written to that file of its end: `slurm-540.out` of a batch job."""
    since = max(since, (_written() or 0) - LOGGED_BYTES)
    try:
        log = read(Path(f"/proc/self/fd/{sys.stderr.fileno()}"), since)
    except StagewatchError:
        return None
    found = first(together([log]))
    return replace(found, time=time.time()) if found and found.kind <= Kind.HELPER else None


def _teller() -> Callable[[str], None]:
    """Returns a function that prints what is wrong as soon as it is, since the end of the command
    may leave no time for a last line; the first time, it also says where to see more."""
    hints = iter(["stagewatch inspect --evidence, in another terminal, shows more"])

    def tell(hang: str) -> None:
        _say(("\n" if "\n" in hang else ".  ").join([hang, *islice(hints, 1)]))

    return tell


def _say(line: str) -> None:
    print(f"stagewatch: {line}", file=sys.stderr, flush=True)


def nccl(plugin: str) -> dict[str, str]:
    """What has NCCL load a profiler plugin; nothing without one.  Raises `ConfigError`."""
    if not plugin:
        return {}
    found = importlib.util.find_spec(OURS) if plugin == "stagewatch" else None
    if plugin == "stagewatch" and (found is None or found.origin is None):
        raise ConfigError("--nccl stagewatch needs the package stagewatch-nccl: make plugin")
    file = Path(found.origin).with_name(LIBRARY) if found and found.origin else Path(plugin)
    if not file.is_file():
        raise ConfigError(f"--nccl: {file} is not a file")
    inspector = INSPECTOR if "inspector" in file.name else {}
    return {**inspector, "NCCL_PROFILER_PLUGIN": str(file.absolute())}


def environment(environ: Mapping[str, str], job: str) -> dict[str, str]:
    """The environment of the command: the loader, and a name for the job where nothing has one."""
    path = [str(LOADER), *filter(None, [environ.get("PYTHONPATH")])]
    added = {
        "PYTHONPATH": os.pathsep.join(path),
        "STAGEWATCH_RUN_ID": f"run-{os.getpid()}-{os.uname().nodename}",
    }
    return {**environ, **added, **({"STAGEWATCH_JOB_ID": job} if job else {})}


def flight_recorder(environ: Mapping[str, str]) -> dict[str, str]:
    """Lets PyTorch's flight recorder be asked by a pipe for the latest collectives, unless the user
    has said how; `incidents.flight_recorder` asks it.

    The pipes lie in /tmp, which all nodes have: PyTorch ends its watchdog where it cannot make
    them.  Nobody else can guess their names, and take them.
    """
    if PIPE in environ:
        return {}
    return {PIPE: f"/tmp/stagewatch-fr-{secrets.token_hex(8)}-"}  # noqa: S108


def ras(environ: Mapping[str, str]) -> dict[str, str]:
    """Gives NCCL's RAS a port of the command's own, unless the user has said how.

    By default all jobs of a node share one: a question may come to another job of the same user,
    and of a second user's job none is answered.
    """
    if environ.keys() & {RAS, "NCCL_RAS_ENABLE"}:
        return {}
    return {RAS: f"localhost:{secrets.choice(RAS_PORTS)}"}


def _remove_pipes(prefix: str | None) -> None:
    """Remove the pipes on this node that killed ranks have left."""
    if prefix is not None:
        for pipe in Path(prefix).parent.glob(f"{Path(prefix).name}*.pipe"):
            with contextlib.suppress(OSError):
                pipe.unlink()
