"""The table of blocking calls, on what py-spy saw of real libraries in `blocking_programs`."""

from __future__ import annotations

import json

import pytest

from stagewatch.ranks.stacks import Frame
from stagewatch.ranks.waits.blocking_calls import Whom, blocking_call
from tests.ranks.waits.blocking_programs import PROGRAMS, RECORDED

SEEN = {
    name: [Frame(*frame) for frame in frames]
    for name, frames in json.loads(RECORDED.read_text()).items()
}

PEERS, PROCESS, CHILD, OWN = Whom.PEERS, Whom.PROCESS, Whom.CHILD, Whom.OWN
DEVICE, STORAGE, ANYBODY = Whom.DEVICE, Whom.STORAGE, Whom.ANYBODY

TOLD = {
