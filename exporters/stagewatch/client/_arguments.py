"""What callers pass, made fit for the record; nothing here raises, whatever it is given."""

from __future__ import annotations

import contextlib

from stagewatch.client._warning import swallow, warn_once
from stagewatch.record import SUBSTAGE_SIZE, pad
from stagewatch.stages import CODES, OTHER

MAX_STEP = 2**63 - 1
MAX_NAMES = 1024
"""Most stage names whose code is remembered; names with a counter in them would fill memory."""

NAMES: dict[tuple[object, object], tuple[int, bytes]] = {}
"""Code and stored label by the name and substage that a caller gave."""


def learn_name(name: object, substage: object) -> tuple[int, bytes]:
    """The code and the label of a stage, kept in `NAMES` for the next time."""
    try:
        known = _resolve(str(name), str(substage))
        if len(NAMES) < MAX_NAMES:
            with contextlib.suppress(TypeError):  # a name that cannot be a key
                NAMES[name, substage] = known
        return known
    except Exception as error:
        swallow("the name of a stage cannot be used", error)
        return OTHER, bytes(SUBSTAGE_SIZE)


def _resolve(name: str, substage: str) -> tuple[int, bytes]:
    code = CODES.get(name, OTHER)
    label = substage or (name if code == OTHER and name != "other" else "")
    return code, pad(label, SUBSTAGE_SIZE)


def whole_step(step: object) -> int | None:
    """A step as the record can hold it; the mark of progress is made even if the step is lost."""
    try:
        number = int(step)  # type: ignore[call-overload]
        if -1 <= number <= MAX_STEP:
            return int(number)
        warn_once("a step was not recorded", f"{number} does not fit into 63 bits")
    except Exception as error:
        swallow("a step was not recorded", error)
    return None
