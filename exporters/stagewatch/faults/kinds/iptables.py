"""Packets that are dropped, by rules in a chain of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stagewatch.faults.commands import Commands, shown
from stagewatch.faults.steps import Step


@dataclass(frozen=True, slots=True)
class Chain(Step):
    """A chain that packets of a built-in one pass first; undone by name, so that nobody else's
    rules are touched."""

    in_network_namespace: ClassVar[bool] = True

    tool: str
    """`iptables` or `ip6tables`."""
    hook: str
    """The built-in chain."""
    name: str
    rules: tuple[tuple[str, ...], ...]
    comment: str

    def doing(self) -> list[str]:
        return [shown(command) for command in self._doing()]

    def undoing(self) -> list[str]:
        return [shown(command) for command in self._undoing()]

    def do(self, commands: Commands) -> None:
        for command in self._doing():
            commands.run(*command)

    def undo(self, commands: Commands) -> list[str]:
        unhook, flush, remove = self._undoing()
        done = []
        for command in (unhook, flush, remove):
            while self._needed(commands, command):
                commands.run(*command)
                done.append(shown(command))
                if command is flush:
                    break
        return done

    def _needed(self, commands: Commands, command: tuple[str, ...]) -> bool:
        """Whether there is something for it to undo.  Every rule is listed: asked for one chain,
        iptables says in several ways, and by no status of its own, that it is not there."""
        rules = commands.run(self.tool, "-w", "-S").stdout.splitlines()
        if "-D" in command:
            end = f" -j {self.name}"
            return any(rule.startswith(f"-A {self.hook} ") and rule.endswith(end) for rule in rules)
        return f"-N {self.name}" in rules

    def _doing(self) -> list[tuple[str, ...]]:
        base = (self.tool, "-w")
        noted = ("-m", "comment", "--comment", self.comment)
        return [
            (*base, "-N", self.name),
            *((*base, "-A", self.name, *rule, *noted, "-j", "DROP") for rule in self.rules),
            (*base, "-I", self.hook, *noted, "-j", self.name),
        ]

    def _undoing(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        base = (self.tool, "-w")
        noted = ("-m", "comment", "--comment", self.comment)
        return (
            (*base, "-D", self.hook, *noted, "-j", self.name),
            (*base, "-F", self.name),
            (*base, "-X", self.name),
        )
