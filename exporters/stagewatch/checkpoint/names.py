"""Reads the step of a checkpoint from the name of a file or directory."""

from __future__ import annotations

import re

TEMPORARY = re.compile(r"(?:^|[._-])(?:tmp|temp|part|partial|incomplete)(?:[._-]|\d|$)", re.I)
"""A file that was being written when its writer ended."""

STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt|epoch)[-_=]?0*(\d{1,12})", re.I)
_NUMBER = re.compile(r"(\d{1,12})(?!.*\d)")


def step_of(name: str) -> tuple[int, int | None]:
    """The step in a name, and how clear it is: 2 for `step_10`, 1 for `10.pt`, 0 for none.

    Of the names in a directory, only the clearest count: beside `checkpoint-500` there may be
    `events.out.1732` and `latest.txt`.
    """
    found = list(STEP.finditer(name))
    if found:
        return 2, int(found[-1][1])
    match = _NUMBER.search(name.partition(".")[0] or name)
    return (1, int(match[1])) if match else (0, None)
