"""Programs of several processes, which say who is who: `say("worker", pid)`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.running import Script
from tests.waiting import wait_for

PRELUDE = """
import os, signal, socket, struct, sys, threading, time
signal.alarm(600)

def say(name, pid=None):
    os.write(1, f"{name} {os.getpid() if pid is None else pid}\\n".encode())

def fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(600)
            work()
        finally:
            os._exit(0)
    return pid

def sleep():
    time.sleep(600)
"""


def code(text: str) -> str:
    """A program with `say`, `fork` and `sleep`."""
    return PRELUDE + textwrap.dedent(text)


@dataclass
class Program:
    """A running program."""

    script: Script
    names: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        """The pid, or whatever number was said, of a name."""
        wait_for(lambda: self._read(name) or self.script.process.poll() is not None, name, 30.0)
        assert self._read(name), self.script.output()
        return self.names[name]

    def _read(self, name: str) -> bool:
        for line in self.script.output().splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdecimal():
                self.names[words[0]] = int(words[1])
        return name in self.names


Start = Callable[..., Program]
"""`program(code, *arguments)`: starts one."""
