"""Selectors are read back as what they were built from, whatever others named their jobs."""

from __future__ import annotations

import re

import promql_parser
from hypothesis import given
from hypothesis import strategies as some

from stagewatch.prometheus.selectors import Not, Regex, matchers, select

UGLY = (
    some.text() | some.text(alphabet="\"\\'\n`{}[]()|.*+?^$,=~ GCLJOBS\t\0-_é€") | some.just("CL")
)


def read(selector: str) -> tuple[str | None, dict[str, tuple[str, str]]]:
    """Name of the metric; operator and value by label."""
    parsed = promql_parser.parse(selector)
    assert isinstance(parsed, promql_parser.VectorSelector)
    return parsed.name, {each.name: (str(each.op), each.value) for each in parsed.matchers.matchers}


def test_a_selector_reads_as_promql() -> None:
    shown = select(
        "up", cluster="lab", node=["a", "b.c"], stage=Not("idle"), job=Regex("stagewatch.*")
    )
    assert shown == (r'up{cluster="lab", node=~"a|b\\.c", stage!="idle", job=~"stagewatch.*"}')
    assert select("job:rl_stall:active") == "job:rl_stall:active{}"
    assert matchers(job_id="7") == 'job_id="7"'


@given(UGLY, UGLY)
def test_any_value_is_read_back(one: str, other: str) -> None:
    name, found = read(select("up", node=one, stage=Not(other)))
    assert name == "up"
    assert found == {"node": ("MatchOp.Equal", one), "stage": ("MatchOp.NotEqual", other)}


@given(some.lists(UGLY, min_size=1, max_size=4), UGLY)
def test_one_of_several_values_matches_these_and_no_other(names: list[str], other: str) -> None:
    _, found = read(select("up", node=names))
    operator, expression = found["node"]
    assert operator == "MatchOp.Re"
    matching = [name for name in [*names, other] if re.fullmatch(expression, name)]
    assert matching == [*names, *([other] if other in names else [])]
