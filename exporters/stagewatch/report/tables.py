"""CSV and JSON files that are safe to open and easy to read back."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated, quoted where needed; what is not known is empty.

    Text that a spreadsheet would take for a formula gets an apostrophe before it, and control
    characters, which would move it into a cell of its own, become blanks
    (https://owasp.org/www-community/attacks/CSV_Injection); numbers are left alone.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Dataclasses as objects; what is not known is null, never NaN."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Values that JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else " " for c in value)
        return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else ""
    return value
