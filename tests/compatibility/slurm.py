"""Captures of Slurm's commands, text and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagewatch.slurm.transport import text
from tests.compatibility.reader import Reader, Value


def _nodes(content: bytes) -> Iterator[Value]:
    """`scontrol --oneliner --details --all show nodes`."""
    nodes = text.parse_nodes(content)
    lines = content.decode(errors="replace").splitlines()
    named = [line for line in lines if line.startswith("NodeName=")]
    yield Value("nodes", len(nodes.items), len(named))
    yield Value("records not read", nodes.malformed, 0)
    yield Value(
        "drained nodes",
        sum("DRAIN" in node.flags for node in nodes.items),
        sum(bool(re.search(r"^NodeName=.*? State=\S*\+DRAIN\b", line)) for line in named),
    )


READERS = (Reader("slurm", ("scontrol_show_node*.txt",), _nodes),)
