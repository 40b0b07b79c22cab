"""The committed boards, taken apart for the tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "dashboards"
GENERATED = DIRECTORY / "generated"
FILES = sorted(GENERATED.glob("*.json"))
NAMES = [path.stem for path in FILES]

_SUBSTITUTES = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "1h"}


@dataclass(frozen=True)
class Query:
    """A query somewhere on a board."""

    board: str
    where: str
    expr: str
    instant: bool = False

    def __str__(self) -> str:
        return f"{self.board}: {self.where}"


def load(name: str) -> dict[str, Any]:
    """A board's JSON."""
    board: dict[str, Any] = json.loads((GENERATED / f"{name}.json").read_text())
    return board


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel and row, those inside collapsed rows too."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def data_panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels that ask for data."""
    return (panel for panel in panels(board) if panel["type"] not in ("row", "text"))


def panel_queries(name: str) -> list[Query]:
    """The queries of a board's panels."""
    return [
        Query(name, f"{panel['title']} [{target['refId']}]", target["expr"], target["instant"])
        for panel in data_panels(load(name))
        for target in panel["targets"]
    ]


def annotation_queries(name: str) -> list[Query]:
    """The queries of a board's annotations."""
    return [
        Query(name, f"annotation {each['name']}", each["expr"])
        for each in load(name)["annotations"]["list"]
    ]


def variable_queries(name: str) -> list[tuple[str, Query, str]]:
    """Of each variable that asks Prometheus: its name, the selector, and the label it lists."""
    found = []
    for variable in load(name)["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert match, variable["query"]
            query = Query(name, f"variable {variable['name']}", match[1], instant=True)
            found.append((variable["name"], query, match[2]))
    return found


def all_queries(name: str) -> list[Query]:
    """Every expression of a board."""
    variables = [query for _, query, _ in variable_queries(name)]
    return [*panel_queries(name), *annotation_queries(name), *variables]


def filled(expr: str, **variables: str) -> str:
    """An expression as Grafana would send it; variables not given are All."""
    for name, value in _SUBSTITUTES.items():
        expr = expr.replace(name, value)
    return re.sub(r"\$([a-zA-Z_]\w*)", lambda match: variables.get(match[1], ".*"), expr)
