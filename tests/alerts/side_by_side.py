"""The cases of a promtool test file, played at once, each in clusters of its own.

promtool plays the cases one after the other, and at every look parses and prints each rule anew,
which takes it far longer than to evaluate the rule over a few series: all cases at once cost little
more than the longest.  An expression sees the clusters of its own case, `case-N/…` for the Nth of
the file from 0 on.  Of the alerts that fire at a moment, those in the clusters of the cases that
ask count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.courses import moved, within
from tests.alerts.promtool import failures_of, group_names

Test = dict[str, Any]


def seconds(duration: str) -> int:
    """A duration as promtool reads and prints it, in whole seconds."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([dhms])", duration))


class SideBySide:
    """A shipped test file, and `more` cases for the same rules, played in a fixed order of groups.

    Groups are evaluated as they follow each other in the files; otherwise promtool takes groups of
    different files in an order of its own.
    """

    def __init__(self, path: Path, more: Iterable[Test] = ()) -> None:
        # As text: to promtool 0x10 are ten samples of nought, and to YAML it is sixteen.
        content = yaml.load(path.read_text(), yaml.CBaseLoader)
        files = [(path.parent / name).resolve() for name in content["rule_files"]]
        order = [group for file in files for group in group_names(file)]
        self._askers: dict[tuple[str, int], set[str]] = {}
        self._content = content | {
            "rule_files": list(map(str, files)),
            "group_eval_order": order,
            "tests": list(self._merged([*content["tests"], *more])),
        }

    def check(self, directory: Path) -> None:
        """Assert that promtool is content with every case."""
        file = directory / "side-by-side.test.yaml"
        file.write_text(json.dumps(self._content))  # JSON is YAML
        failures = [failure for failure in failures_of(file) if not self._as_asked(failure)]
        assert not failures, "\n".join(failures)

    def _merged(self, tests: list[Test]) -> Iterator[Test]:
        """One test of all cases whose series have the same interval.

        A case with something outside of clusters is played alone.
        """
        merged: dict[str, Test] = {}
        for number, test in enumerate(tests):
            if not _in_clusters(test):
                for each in test.get("promql_expr_test", ()):
                    for sample in each.get("exp_samples") or ():
                        sample["value"] = float(sample["value"])
                yield test
                continue
            together = merged.setdefault(
                test["interval"],
                {"interval": test["interval"], "input_series": [], "promql_expr_test": []},
            )
            together["input_series"] += [
                each | {"series": moved(each["series"], number)} for each in test["input_series"]
            ]
            for each in test.get("promql_expr_test", ()):
                samples = [
                    {"labels": moved(sample["labels"], number), "value": float(sample["value"])}
                    for sample in each.get("exp_samples") or ()
                ]
                expression = within(moved(each["expr"], number), number)
                together["promql_expr_test"].append(
                    each | {"expr": expression, "exp_samples": samples}
                )
            for each in test.get("alert_rule_test", ()):
                asked = each["alertname"], seconds(str(each["eval_time"]))
                self._askers.setdefault(asked, set()).add(str(number))
                together.setdefault("alert_rule_test", {}).setdefault(asked, []).extend(
                    alert
                    | {
                        "exp_labels": alert["exp_labels"]
                        | {"cluster": f"case-{number}/{alert['exp_labels']['cluster']}"}
                    }
                    for alert in each.get("exp_alerts") or ()
                )
        for test in merged.values():
            test["alert_rule_test"] = [
                {"alertname": name, "eval_time": f"{when}s", "exp_alerts": alerts}
                for (name, when), alerts in test.get("alert_rule_test", {}).items()
            ]
            yield test

    def _as_asked(self, failure: str) -> bool:
        """Whether all that differs is an alert of a case that does not ask for it then."""
        asked = re.match(r" +alertname: (\w+), time: (\w+), ", failure)
        if not asked or not (askers := self._askers.get((asked[1], seconds(asked[2])))):
            return False
        expected, _, got = failure.partition("\n        got:")
        return _alerts(expected, askers) == _alerts(got, askers)


def _in_clusters(test: Test) -> bool:
    """Whether all that it gives and expects has a cluster, and its expressions can be limited."""
    alerts = [
        alert for each in test.get("alert_rule_test", ()) for alert in each.get("exp_alerts") or ()
    ]
    given = test.get("input_series", ())
    return (
        bool(given)
        and not any("__name__" in each["expr"] for each in test.get("promql_expr_test", ()))
        and all('cluster="' in each["series"] for each in given)
        and all("cluster" in alert["exp_labels"] for alert in alerts)
    )


def _alerts(printed: str, askers: set[str]) -> list[list[str]]:
    """Alerts as promtool prints them: the case, labels, annotations.

    Without those of a case that is not among the askers, but with those of no case.
    """
    alerts = []
    for labels, texts in re.findall(r"Labels:(\{.+\})\n +Annotations:(\{.+\})", printed):
        case = re.search(r'\bcluster="case-(\d+)/', labels)
        if not case or case[1] in askers:
            plain = [re.sub(r"\bcase-\d+/", "", text) for text in (labels, texts)]
            alerts.append([case[1] if case else "", *plain])
    return sorted(alerts)
