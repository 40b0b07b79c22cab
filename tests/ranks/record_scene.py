"""Ranks of the record directory's tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.running import Script

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as a second user needs root")

RANK = """
import os, sys, time
import stagewatch
if len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
stagewatch.init(job_id=540, rank=int(sys.argv[1]))
stagewatch.heartbeat(1)
print("ready", flush=True)
time.sleep(600)
"""

Start = Callable[..., Script]
"""`start_rank(4)`, or `start_rank(4, uid, prefix=("unshare", ...))`: a rank that has begun."""
