"""The text of every alert, as Prometheus fills it in and Alertmanager sends it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from email import message_from_string
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from tests.alerts.alertmanager import Manager
from tests.alerts.promtool import ALERTS, groups_of, needs_promtool, series
from tests.waiting import wait_for

SHARES = (0.0123456, 0.8765432)
FRACTIONS = (0.0123456, 8.123456, 43.98765, 8787.123456)
WHOLE = (1.0, 3.0, 8787.0)
COUNTED = {
    "CheckpointNotWhole",
    "FailedButNotEnded",
    "GPUCountBelowConfigured",
    "GPUNVLinkDown",
    "GPUPCIeDegraded",
    "GPURecoveryNeeded",
    "GPUUncorrectableECC",
    "JobLostNode",
    "JobOnSilentStorage",
    "LossNotFinite",
    "JobStalled",
    "NodesLost",
    "SlownessRotates",
    "SlurmGPUTypeMismatch",
    "SlurmNodeCountDropped",
    "SlurmNodeFlapping",
    "SlurmRequeueLoop",
    "StagewatchLimitsMissing",
}
"""Alerts that tell their value as it is, since it is a whole number by nature."""
MAY_LACK = {
    "EngineHoldsRequestsYieldsNothing": {"dp_rank", "job_id", "model"},
    "EngineKVCacheExhausted": {"dp_rank", "job_id", "model"},
    "EnginePreemptionStorm": {"job_id", "model"},
    "FaultInjected": {"scenario", "target_worker"},
    "GPUXidCritical": {"gpu", "pci_bus_id"},
    "GPUXidWarning": {"gpu", "pci_bus_id"},
    "JobStalled": {"confidence", "pid"},
    "LogErrorsRepeat": {"role"},
    "OutOfMemoryKill": {"rank", "role"},
    "PageDuringFault": {"node"},
    "SlurmNodeDown": {"reason"},
    "SlurmNodeDrained": {"reason", "reason_class", "user"},
    "SlurmNodeDrainedTooLong": {"reason"},
    "SlurmNodeFailing": {"reason"},
    "StalledHeartbeat": {"evidence"},
    "SlurmRequeueLoop": {"user"},
    "UninstrumentedJobStill": {"class", "node", "rank"},
}
"""Labels that an alert lacks where an agent or Slurm does not know them."""
FRAME = {"frame": "reward.py:25 in length_reward"}
STUMBLES = {
    "a template": r"\{\{|<no value>|%!",
    "two full stops": r"\.\.|\.,|\.;",
    "a blank before a comma or full stop": r"[ \n][,.;:](?!\w)",
    "two blanks": r"(?<!\n) {2}",
    "nothing in brackets or quotes": r"(?<!\w)\( *\)|\"\"|\(,",
    "the name of a kind of evidence": r"(?i)evidence: *\w+_",
    "one of several": r"(?<![-\w.])1 (?!s\b)[a-z]+s\b(?! of\b)",
    "a number of more than three digits": (
        r"(?<![\d.:/-])(?:0\.0*[1-9]\d{3,}|[1-9]\d*\.\d*(?<=[\d.]{5})|\d{4,})"
        r"(?:s\b|ms\b|%| times (?:its|as long as its peers(?:\.|, and)))"
    ),
    "an exponent": r"\de[+-]\d",
    "an age finer than a second": r"\d\.\d+s (?:ago|old)|for \d+\.\d+s",
}


@cache
def of_every_alert() -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Every rule that alerts, with labels such as its own test gives it."""
    labels: dict[str, dict[str, str]] = {}
    for path in sorted((ALERTS / "tests").glob("*.test.yaml")):
        for test in yaml.load(path.read_text(), yaml.CSafeLoader)["tests"]:
            for expected in test.get("alert_rule_test", ()):
                for alert in expected.get("exp_alerts") or ():
                    labels.setdefault(expected["alertname"], alert["exp_labels"])
    return [
        (rule, labels.get(rule["alert"], {}))
        for path in sorted(ALERTS.glob("*.rules.yaml"))
        for group in groups_of(path)
        for rule in group["rules"]
        if "alert" in rule
    ]


def cases(rule: dict[str, Any], labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
    """Labels and values of an alert, each in a cluster of its own; the last ones lack labels."""
    name = rule["alert"]
    shares = "humanizePercentage" in rule["annotations"]["description"]
    values = WHOLE if name in COUNTED else SHARES if shares else FRACTIONS
    own = {key: label for key, label in labels.items() if key not in rule["labels"]}
    few = {key: label for key, label in own.items() if key not in MAY_LACK.get(name, ())}
    for number, value in enumerate(values):
        yield own | {"cluster": f"{level_of(rule)}-{number}"}, value
    yield few | {"cluster": f"{level_of(rule)}-few"}, values[0]


def level_of(rule: dict[str, Any]) -> str:
    """The name of an alert and its severity, of which it may have two."""
    return f"{rule['alert']}-{rule['labels']['severity']}"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The alerts as promtool has them, with labels and annotations."""
    directory = tmp_path_factory.mktemp("texts")
    rules, given = [], {}
    for rule, labels in of_every_alert():
        name = level_of(rule)
        rules.append(
            {key: value for key, value in rule.items() if key != "for"}
            | {"expr": f'max without (of) (made_up{{of="{name}"}})'}
        )
        for own, value in cases(rule, labels):
            given[series("made_up", **own | {"of": name})] = f"{value!r}x2"
            given[series("rl_rank_stack_frame_info", **own | FRAME)] = "1x2"
            given[series("rl_call_oldest_seconds", **own | {"name": "search"})] = "43.98765x2"
            given[series("node:lost:info", cluster=own["cluster"], node="n7")] = "1x2"
    asked = [{"eval_time": "0s", "alertname": name} for name in {r["alert"] for r in rules}]
    content = {"groups": [{"name": "texts", "rules": rules}]}
    (directory / "texts.rules.yaml").write_text(json.dumps(content))
    inputs = [{"series": name, "values": values} for name, values in given.items()]
    test = {
        "rule_files": ["texts.rules.yaml"],
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": asked}],
    }
    (directory / "texts.test.yaml").write_text(json.dumps(test))
    command = ["promtool", "test", "rules", "texts.test.yaml"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    told = re.findall(
        r"Labels:\{(.*)\}\s+Annotations:\{(.*)\}\]?,?\s*$", done.stdout + done.stderr, re.MULTILINE
    )
    alerts = [{"labels": _pairs(labels), "annotations": _pairs(texts)} for labels, texts in told]
    assert len(alerts) == sum(key.startswith("made_up") for key in given), done.stderr[-2000:]
    return alerts


def _pairs(text: str) -> dict[str, str]:
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text)
    return {name: json.loads(value) for name, value in found}


def stumbles(text: str) -> list[str]:
    """What a reader of a text would stumble over."""
    return [
        f"{what}: {match[0]!r} in {text!r}"
        for what, pattern in STUMBLES.items()
        if (match := re.search(pattern, text))
    ]


@needs_promtool
def test_no_alert_has_a_text_that_stumbles(rendered: list[dict[str, Any]]) -> None:
    texts = [text for alert in rendered for text in alert["annotations"].values()]
    assert [stumble for text in texts for stumble in stumbles(text)] == []


def test_only_a_whole_number_is_told_as_it_is() -> None:
    raw = {
        rule["alert"]
        for rule, _ in of_every_alert()
        if re.search(r"\{\{ \$value \}\}", rule["annotations"]["description"])
    }
    assert raw == COUNTED


@needs_promtool
def test_no_message_in_slack_or_mail_stumbles(
    manager: Manager, rendered: list[dict[str, Any]], tmp_path: Path
) -> None:
    told = [alert for alert in rendered if alert["labels"].get("notify") is None]
    shape = manager.alert("any")
    manager.tell([shape | alert for alert in told])
    clusters = {alert["labels"]["cluster"] for alert in told}

    warned = {
        alert["labels"]["cluster"] for alert in told if alert["labels"]["severity"] == "warning"
    }
    heard = manager.heard

    def notes() -> list[str]:
        return [body for path, _, body in heard.posts if path.startswith("/sns")]

    wait_for(
        lambda: (  # tickets go to Slack and by mail
            len(heard.to("/slack") + notes() + heard.mails) >= len(clusters) + len(warned)
        ),
        "a message of each alert",
        120,
    )
    posts = [json.loads(body)["attachments"][0] for body in heard.to("/slack")]
    texts = [f"{post['title']}\n{post['text']}" for post in posts]
    texts += [parse_qs(note)["Message"][0] for note in notes()]
    for mail in heard.mails:
        message = message_from_string(mail)
        (part,) = message.get_payload()
        texts.append(f"{message['Subject']}\n{part.get_payload(decode=True).decode()}")
    (tmp_path / "messages.txt").write_text("\n\n".join(sorted(texts)))
    assert [stumble for text in texts for stumble in stumbles(text)] == []
