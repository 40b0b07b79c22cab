"""What twelve events of 1,024 nodes send to people: a real Alertmanager, the shipped files.

promtool evaluates the shipped rules over the series of each event (pager_events.py), every 15 s for
ten minutes; where an interval is shorter, alerts come up to 15 s earlier.  It does so for 64 nodes,
each of which stands for 16: an alert that names a node becomes 16, but for events of one.  What
fires, with the texts that the rules give it, goes to an Alertmanager at the same times, twenty
times as fast; all of its waits are divided by that.  A listener takes what it sends.  The budget is
one page, none for routine work, and three chat messages a receiver.

`--event NAME`, which may be repeated, plays only these.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import yaml

from stagewatch.core.processes import Children
from tests.alerts.alertmanager import BINARY, Manager, running
from tests.bench.pager_events import AFTER, BEFORE, EVENTS, STEP_SECONDS, Event, healthy
from tests.dashboards.boards import ROOT

ALERTS = ROOT / "alerts"
FASTER = 20
TOGETHER = 4
"""Events that one Alertmanager is told of, each a cluster of its own."""
PAGES, CHATS = 1, 3
_BLOCK = re.compile(r"alertname: (\w+), time: (\w+),\s+exp:\[\s*\],\s+got:\[(.*?)\n {12}\]", re.S)
_ALERT = re.compile(r"Labels:(\{.*\})\n\s+Annotations:(\{.*\})")
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Sent:
    """One message of an event."""

    kind: str
    seconds: float
    """Since the event."""
    title: str
    text: str
    key: str = ""
    """By which PagerDuty joins messages to one incident."""


def main(arguments: Sequence[str] = ()) -> None:
    """Evaluate the rules over every event, replay what fires, and print what was sent."""
    parser = argparse.ArgumentParser(prog='make bench ARGS="pager ..."')
    names = [event.name for event in EVENTS]
    parser.add_argument("--event", action="append", choices=names, help="all by default")
    wanted = parser.parse_args(arguments).event or names
    events = [event for event in EVENTS if event.name in wanted]
    if BINARY is None or shutil.which("promtool") is None:
        raise SystemExit("bench_pager needs alertmanager and promtool on the PATH")
    directory = Path(tempfile.mkdtemp(prefix="stagewatch-bench-"))
    try:
        with ThreadPoolExecutor(2) as pool:
            fired = list(pool.map(lambda event: firing(event, directory), events))
        course = list(zip(events, fired, strict=True))
        sent: dict[str, list[Sent]] = {}
        for first in range(0, len(course), TOGETHER):
            home = directory / str(first)
            home.mkdir()
            with Children() as children, running(children, home, faster=FASTER) as manager:
                sent |= replay(manager, course[first : first + TOGETHER])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report(sent, course)


Alert = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Labels and annotations."""


def firing(event: Event, directory: Path) -> list[set[Alert]]:
    """What fires at each step from the event on, as promtool tells it of the shipped rules."""
    fleet = healthy()
    event.happens(fleet)
    files = sorted(ALERTS.glob("*.rules.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    names = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    checks = [
        {"alertname": name, "eval_time": f"{(BEFORE + step) * STEP_SECONDS}s"}
        for step in range(-1, AFTER)
        for name in names
    ]
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [
            {"series": name, "values": values} for name, values in fleet.text(event.name).items()
        ],
        "alert_rule_test": checks,
    }
    file = directory / f"{event.name}.test.yaml"
    content = {
        "rule_files": [str(path) for path in files],
        "evaluation_interval": f"{STEP_SECONDS}s",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [test],
    }
    file.write_text(json.dumps(content))  # JSON is YAML
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    steps: list[set[Alert]] = [set() for _ in range(AFTER + 1)]
    for _, when, got in _BLOCK.findall(done.stdout + done.stderr):
        step = round(_seconds(when) / STEP_SECONDS) - BEFORE
        for labels, texts in _ALERT.findall(got):
            steps[step + 1].add((_pairs(labels), _pairs(texts)))
    if not any(steps) and "SUCCESS" not in done.stdout:
        raise SystemExit(f"promtool: {(done.stdout + done.stderr)[:2000]}")
    return steps


def replay(manager: Manager, course: list[tuple[Event, list[set[Alert]]]]) -> dict[str, list[Sent]]:
    """Tell Alertmanager of several events at once; what it sends for each."""
    begin = time.time()
    for step in range(AFTER + 1):
        at = begin + max(step - 1, -1) * STEP_SECONDS / FASTER + STEP_SECONDS / FASTER
        time.sleep(max(0.0, at - time.time()))
        alerts = [
            _as_sent(copy, event.name, ended=ended)
            for event, steps in course
            for alert, ended in _changes(steps, step)
            for copy in _copies(alert, event.copies)
        ]
        for first in range(0, len(alerts), 2000):
            manager.tell(alerts[first : first + 2000])
    end = begin + (AFTER + 1) * STEP_SECONDS / FASTER
    time.sleep(max(0.0, end - time.time()))
    start = begin + STEP_SECONDS / FASTER
    sent: dict[str, list[Sent]] = {event.name: [] for event, _ in course}
    for name, message in _messages(manager, start):
        if name in sent:
            sent[name].append(message)
    return sent


def report(sent: dict[str, list[Sent]], course: list[tuple[Event, list[set[Alert]]]]) -> None:
    """One line for each event, then what was said first."""
    head = ("event", "alerts", "pages", "page sends", "chat page", "chat ticket", "mails", "notes")
    print(f"{head[0]:<22}" + "".join(f"{name:>12}" for name in head[1:]) + "  first, after")
    bad = []
    for event, steps in course:
        messages = sent[event.name]
        count = Counter(message.kind for message in messages)
        pages = len({message.key for message in messages if message.kind == "page"})
        first = min(messages, key=lambda message: message.seconds, default=None)
        said = f"{first.title}, {first.seconds:.0f} s" if first else "nothing"
        kinds = ("page", "chat page", "chat ticket", "mail", "note")
        alerts = {labels for step in steps for labels, _ in step}
        number = sum(len(list(_copies((labels, ()), event.copies))) for labels in alerts)
        numbers = [number, pages, *(count[kind] for kind in kinds)]
        print(f"{event.name:<22}" + "".join(f"{n:>12}" for n in numbers) + f"  {said}")
        if (
            pages > (PAGES if event.pages else 0)
            or max(count["chat page"], count["chat ticket"]) > CHATS
            or (event.causes and not any(cause in said for cause in event.causes))
        ):
            bad.append(event.name)
    print(f"beyond the budget: {', '.join(bad) or 'none'}")


def _changes(steps: list[set[Alert]], step: int) -> Iterator[tuple[Alert, bool]]:
    """What begins and what ends at a step; an alert whose text alone changes goes on."""
    before = {labels for labels, _ in steps[step - 1]} if step else set()
    now = dict(steps[step])
    for alert in now.items():
        if alert[0] not in before:
            yield alert, False
    if step:
        for alert in steps[step - 1]:
            if alert[0] not in now:
                yield alert, True


def _copies(alert: Alert, copies: int) -> Iterator[Alert]:
    """The alert, or what each of the nodes that its node stands for would send."""
    labels, annotations = dict(alert[0]), alert[1]
    of_task = int(labels.get("job_id", 0)) >= 2000  # a task of an array has a node to itself
    for number in range(copies if of_task or "node" in labels else 1):
        told = dict(labels)
        if of_task:
            told["job_id"] += f"{number:02}"
        if number and "node" in told:
            told["node"] += f"-{number}"
        yield (
            tuple(told.items()),
            tuple(
                (key, text.replace(labels.get("node", "\n"), told.get("node", "")))
                for key, text in annotations
            ),
        )


def _as_sent(alert: Alert, cluster: str, *, ended: bool) -> dict[str, Any]:
    """As Prometheus sends it; the label `cluster`, where it has none, is an external one."""
    labels = {"cluster": cluster} | dict(alert[0])
    now = datetime.now(timezone.utc)
    # To the millisecond: one that began longer ago than the group's wait is told at once.
    sent = {"labels": labels, "annotations": dict(alert[1]), "startsAt": now.isoformat()}
    return sent | {"endsAt": (now if ended else now + timedelta(hours=1)).isoformat()}


def _messages(manager: Manager, start: float) -> Iterator[tuple[str, Sent]]:
    """What the listener took, with the cluster, which is the event, that it speaks of."""
    for (path, _, body), when in zip(manager.heard.posts, manager.heard.times, strict=False):
        seconds = (when - start) * FASTER
        if path == "/pagerduty":
            content = json.loads(body)
            if content["event_action"] != "trigger":
                continue
            title, key = content["payload"]["summary"], content["dedup_key"]
            text = content["payload"]["custom_details"]["what"]
            yield _cluster(title), Sent("page", seconds, title, text, key)
        elif path == "/slack":
            content = json.loads(body)
            (attachment,) = content["attachments"]
            kind = "chat page" if content["channel"] == "#gpu-pages" else "chat ticket"
            title, text = attachment["title"], attachment["text"]
            yield _cluster(title), Sent(kind, seconds, title, text)
        elif path == "/webhook":
            content = json.loads(body)
            labels = content["commonLabels"]
            title = f"note {labels.get('alertname', '')}"
            yield labels.get("cluster", ""), Sent("note", seconds, title, "")
    for mail, when in zip(manager.heard.mails, manager.heard.mail_times, strict=False):
        subject = re.search(r"^Subject: (.*(?:\r\n .*)*)", mail, re.MULTILINE)
        title = re.sub(r"\s+", " ", subject[1]) if subject else ""
        yield _cluster(title), Sent("mail", (when - start) * FASTER, title, mail)


def _cluster(title: str) -> str:
    found = re.search(r"\[([^\]]+)\]", title)
    return found[1] if found else ""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, json.loads(value)) for name, value in _PAIR.findall(text))


def _seconds(duration: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([hms])", duration))


if __name__ == "__main__":
    main(sys.argv[1:])
