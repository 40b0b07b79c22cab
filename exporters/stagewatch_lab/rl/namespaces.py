"""Whether namespaces of the kernel can be made here."""

from __future__ import annotations

import os
import shutil
import subprocess


def missing(kind: str, *tools: str) -> str:
    """What this machine lacks for a namespace of a kind, such as `net`, with what must be done in
    it by these tools; empty if nothing."""
    if os.geteuid() != 0:
        return f"needs root to make a {kind} namespace"
    for tool in ("unshare", "nsenter", *tools):
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian packages util-linux, mount, iproute2)"
    probe = subprocess.run(["unshare", f"--{kind}", "true"], capture_output=True, check=False)
    return f"may not make {kind} namespaces" if probe.returncode else ""
