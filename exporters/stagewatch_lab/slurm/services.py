"""Other services that a Slurm cluster needs: munge, and MariaDB with slurmdbd for accounting."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.stack import free_ports
from stagewatch.demo.waiting import TookTooLong, wait_for
from stagewatch_lab.slurm.keeping import Keeper

NEEDED = (
    "munged",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "squeue",
    "mariadbd",
    "mariadb-install-db",
)


PACKAGES = "munge slurmctld slurmd slurmdbd slurm-client mariadb-server"
"""Debian's and Ubuntu's names of what has them."""


def missing() -> str | None:
    """Why no cluster can be started here; empty if it can."""
    if os.geteuid() != 0:
        return "a private Slurm cluster needs root (slurmd starts jobs as other users, mknod)"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (apt-get install {PACKAGES})" if absent else None


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without the caller's variables of Slurm."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SLURM", "SBATCH", "SQUEUE", "SINFO", "SACCT", "MYSQL"))
    }
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC", **(extra or {})}


@dataclass
class Daemons:
    """Named background processes under one directory."""

    keeper: Keeper
    directory: Path
    pids: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a daemon in the foreground, its output in NAME.log."""
        log = self.directory / f"{name}.log"
        self.pids[name] = self.keeper.spawn(argv, env=env, log=log, cwd=self.directory)
        return self.pids[name]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a daemon alone, not to what it started."""
        os.kill(self.pids[name], number)

    def running(self, name: str) -> bool:
        """Whether a daemon has not ended."""
        return name in self.pids and self.keeper.status(self.pids[name]) is None

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon and wait for it; SIGTERM falls back on SIGKILL."""
        if not self.running(name):
            return
        self.send(name, number)
        if number is signal.SIGTERM:
            self.send(name, signal.SIGCONT)
        try:
            wait_for(lambda: not self.running(name), f"{name} to end", limit=20)
        except TookTooLong:
            self.send(name, signal.SIGKILL)
            wait_for(lambda: not self.running(name), f"{name} to be killed")

    def log(self, name: str) -> str:
        """The end of a daemon's output, for messages."""
        try:
            return (self.directory / f"{name}.log").read_text(errors="replace")[-3000:]
        except FileNotFoundError:
            return ""


class Munge:
    """A private munged, whose key opens nothing else."""

    def __init__(self, keeper: Keeper, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.socket = directory / "munge.socket"
        self._daemons = Daemons(keeper, directory)
        key = directory / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        paths = {"key": key, "socket": self.socket}
        for name in ("pid", "log", "seed"):
            paths[name] = directory / f"munged.{name}"
        flags = [
            f"--{name if name == 'socket' else f'{name}-file'}={path}"
            for name, path in paths.items()
        ]
        self._daemons.start("munged", ["munged", "--foreground", "--force", *flags], environment())
        wait_for(self.socket.exists, f"munged's socket: {self._daemons.log('munged')}")


class Accounting:
    """MariaDB and slurmdbd."""

    def __init__(self, keeper: Keeper, directory: Path, munge: Munge) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.daemons = Daemons(keeper, directory)
        self.directory = directory
        self.port, self._database_port = free_ports(2)
        self._config = directory / "slurmdbd.conf"
        self._config.write_text(
            f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={self.port}\n"
            f"AuthType=auth/munge\nAuthInfo=socket={munge.socket}\n"
            f"SlurmUser=root\nLogFile={directory}/slurmdbd.detail.log\n"
            f"PidFile={directory}/slurmdbd.pid\nDebugLevel=info\n"
            "StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self._database_port}\nStorageUser=root\nStoragePass=any\n"
            "StorageLoc=accounting\nCommitDelay=0\n"
        )
        self._config.chmod(0o600)
        self._install_database()
        self.start_database()
        self.start()

    def _install_database(self) -> None:
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--datadir={self.directory}/data",
            ],
            check=True,
            capture_output=True,
            env=environment(),
            timeout=240,
        )

    def start_database(self) -> None:
        """Start MariaDB and wait until it takes connections."""
        self.daemons.start(
            "mariadbd",
            [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                f"--datadir={self.directory}/data",
                f"--socket={self.directory}/mysql.sock",
                f"--pid-file={self.directory}/mysql.pid",
                f"--port={self._database_port}",
                "--bind-address=127.0.0.1",
                "--skip-grant-tables",
                "--skip-log-bin",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=64M",
            ],
            environment(),
        )
        wait_for(
            lambda: _accepts(self._database_port) or self._check("mariadbd"), "MariaDB to answer"
        )

    def start(self) -> None:
        """Start slurmdbd and wait until it takes connections."""
        env = environment({"SLURM_CONF": str(self.directory / "slurm.conf")})
        (self.directory / "slurm.conf").touch()
        self.daemons.start("slurmdbd", ["slurmdbd", "-D"], env)
        wait_for(
            lambda: _accepts(self.port) or self._check("slurmdbd"), "slurmdbd to answer", limit=120
        )

    def _check(self, name: str) -> bool:
        if not self.daemons.running(name):
            raise StagewatchError(f"{name} ended:\n{self.daemons.log(name)}")
        return False


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
