"""A job's owner is told in one line that it hangs and how it ended; hostile text stays text."""

from __future__ import annotations

import dataclasses
import email
import email.policy
import json
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from stagewatch.act.message import Send, address_template, by_mail, by_webhook
from stagewatch.act.owner import MESSAGES, OVER_SECONDS, SINCE, SPEC, TOLD, OwnerCollector
from stagewatch.core.errors import ConfigError, NoData
from stagewatch.core.state_file import StateFile
from stagewatch.judgement.collector import JudgeContext, JudgeOptions, ServerOptions
from stagewatch.judgement.memory import Moment, State
from stagewatch.judgement.watch import Judged, Look
from stagewatch.prometheus.api import Series
from stagewatch.ranks.stacks import Stack
from tests.judgement.jobs import LEFT, SPINNING, job, verdict
from tests.serving import MailServer, Reply, Request, WebServer

NOW = 1_790_000_000.0


class Smtp(MailServer):
    """A mail server that knows the parts of a mail."""

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def taken(self) -> list[tuple[str, EmailMessage]]:
        """Recipient and content."""
        read = [(to, email.message_from_string(text, policy=email.policy.default))
                for to, text in self.mails]  # fmt: skip
        return [(to, mail) for to, mail in read if isinstance(mail, EmailMessage)]


class Webhook(WebServer):
    """What Slack and Mattermost have: a URL that takes JSON with a text."""

    def __init__(self, status: int = 200) -> None:
        self.texts: list[str] = []
        super().__init__(self._reply)
        self._status = status

    def _reply(self, request: Request) -> Reply:
        self.texts.append(json.loads(request.body)["text"])
        return Reply(status=self._status)

    def file(self, directory: Path) -> Path:
        file = directory / "webhook"
        file.write_text(f"{self.url}/services/T0/B0/secret\n")
        return file


@pytest.fixture
def smtp() -> Iterator[Smtp]:
    with closing(Smtp()) as stub:
        yield stub


class Jobs:
    """A Prometheus that knows the users of jobs, which of them live, and scrapes judges."""

    def __init__(self, user: str = "ada") -> None:
        self.user = user
        self.lives = True
        self.judges: dict[Path, float] = {}
        self.told: dict[Path, float] = {}

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        if expression == SINCE.name:
            return [Series({}, began) for began in self.judges.values()]
        if expression.startswith(f"max_over_time({TOLD.name}"):
            return [Series({"cluster": "c", "job_id": "540"}, n) for n in self.told.values()]
        if expression.startswith("job:slurm_owner:info"):
            return [Series({"cluster": "c", "job_id": "540", "user": self.user}, 1.0)]
        assert expression.startswith("count(rl_rank_up")
        return [Series({}, 8.0)] if self.lives else []


class Scene:
    """A judge that looks again and again, and tells owners."""

    def __init__(
        self, directory: Path, *send: Send, user: str = "ada", beside: Scene | None = None
    ) -> None:
        """`beside`: another judge that is scraped by the same Prometheus."""
        self.directory = directory
        self.send = send
        self.jobs: Jobs = beside.jobs if beside else Jobs(user)
        self.now: float = beside.now if beside else NOW
        self.context = JudgeContext(JudgeOptions(case_dir=directory))
        self.collector = self.restarted()

    def restarted(self) -> OwnerCollector:
        state = StateFile(self.directory / "told.json", make_directory=True)
        command = "stagewatch inspect --job {job}  # {node}"
        self.collector = OwnerCollector(
            self.context, self.jobs, self.send, state, command, lambda: self.now
        )
        self.scraped()
        return self.collector

    def scraped(self) -> None:
        since = self.collector.collect().value(SINCE) if self.send else None
        if since is not None:
            self.jobs.judges[self.directory] = since

    def ends(self) -> None:
        """It is scraped no more."""
        del self.jobs.judges[self.directory]

    def look(self, *, hangs: bool, paged: bool = True, blind: bool = False, **rank: Any) -> None:
        """Five seconds later."""
        self.now += 5
        ranks = job(8, SPINNING, rank_5=LEFT | rank)
        ranks = [dataclasses.replace(one, node=f"n{one.rank}") for one in ranks]
        state = State(verdict(ranks), self.now - 300, 1800.0, 60.0, paged)
        hung = {("c", "540"): Judged([state], deque([Moment(self.now, tuple(ranks))]))}
        missing = frozenset({"targets"} if blind else ())
        self.context.latest = Look(self.now, hung if hangs else {}, {}, missing)
        samples = self.collector.collect()
        if told := samples.value(TOLD, "c", "540"):
            self.jobs.told[self.directory] = told

    def end(self) -> None:
        self.look(hangs=False)
        self.now += OVER_SECONDS
        self.look(hangs=False)


class Heard:
    """A way that only listens."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, str]] = []

    def __call__(self, *message: str) -> None:
        user, job_id, subject, line = message
        self.lines.append((user, job_id, subject, line))


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_the_owner_hears_since_when_who_which_line_what_it_cost_and_what_to_run(
    tmp_path: Path, smtp: Smtp
) -> None:
    scene = Scene(tmp_path, by_mail("{user}@example.org", "judge@example.org", smtp.address))
    scene.look(hangs=True, stack=Stack("s", True, "fit.py:212 in step"))
    scene.end()
    (to, verdict_mail), (_, end_mail) = smtp.taken
    assert to == "ada@example.org"
    assert verdict_mail["From"] == "judge@example.org"
    assert verdict_mail["Subject"] == "Job 540 stands still"
    body = verdict_mail.get_content().strip()
    assert "\n" not in body
    assert "Job 540 has hung since" in body
    assert "rank 5" in body and "at fit.py:212 in step" in body
    assert "It has cost 4.0 GPU-hours so far. Next: stagewatch inspect --job 540  # n5" in body
    assert end_mail["Subject"] == "Job 540 goes on"
    assert "It stood still for 30 min 5 s: 4.0 GPU-hours." in end_mail.get_content()


def test_a_job_is_told_of_twice_at_most_also_over_restarts(tmp_path: Path, heard: Heard) -> None:
    scene = Scene(tmp_path, heard)
    for _ in range(3):
        scene.look(hangs=True)
        scene.restarted()
    assert len(heard.lines) == 1
    scene.jobs.lives = False
    scene.end()
    scene.restarted()
    scene.look(hangs=True)
    scene.end()
    assert [subject for _, _, subject, _ in heard.lines] == [
        "Job 540 stands still",
        "Job 540 has ended",
    ]


@pytest.fixture
def pair(tmp_path: Path, heard: Heard) -> tuple[Scene, Scene]:
    """Two judges, the older one first."""
    old = Scene(tmp_path / "old", heard)
    old.now += 60
    return old, Scene(tmp_path / "new", heard, beside=old)


SUBJECTS = ["Job 540 stands still", "Job 540 goes on"]


@pytest.mark.parametrize("first", [0, 1])
def test_two_judges_tell_a_job_s_owner_twice_at_most(
    pair: tuple[Scene, Scene], heard: Heard, first: int
) -> None:
    for _ in range(2):
        for scene in (pair[first], pair[1 - first]):
            scene.look(hangs=True)
    for scene in pair:
        scene.end()
    assert [subject for _, _, subject, _ in heard.lines] == SUBJECTS


def test_the_other_judge_goes_on_where_the_first_one_ends(
    pair: tuple[Scene, Scene], heard: Heard
) -> None:
    old, new = pair
    for scene in pair:
        scene.look(hangs=True)
    old.ends()
    new.restarted()
    new.look(hangs=True)
    new.end()
    assert [subject for _, _, subject, _ in heard.lines] == SUBJECTS
    old.restarted()
    old.look(hangs=True)
    old.end()
    assert len(heard.lines) == 2


def test_a_judge_that_was_away_tells_nothing_of_what_the_other_has_told(
    pair: tuple[Scene, Scene], heard: Heard
) -> None:
    old, new = pair
    old.ends()
    for _ in range(20):
        new.look(hangs=True)
    old.now = new.now
    old.scraped()
    old.look(hangs=True)
    assert len(heard.lines) == 1


def test_a_judge_in_a_new_pod_tells_no_owner_again(tmp_path: Path, heard: Heard) -> None:
    scene = Scene(tmp_path, heard)
    scene.look(hangs=True)
    (tmp_path / "told.json").unlink()
    scene.now += 1
    scene.restarted()
    scene.look(hangs=True)
    scene.look(hangs=True)
    scene.end()
    assert [subject for _, _, subject, _ in heard.lines] == SUBJECTS


def test_a_judge_tells_nothing_before_it_is_scraped(tmp_path: Path, heard: Heard) -> None:
    scene = Scene(tmp_path, heard)
    scene.ends()
    scene.look(hangs=True)
    assert not heard.lines
    scene.scraped()
    scene.look(hangs=True)
    assert len(heard.lines) == 1


def test_nothing_is_told_of_what_pages_nobody_or_is_seen_in_part(
    tmp_path: Path, heard: Heard
) -> None:
    scene = Scene(tmp_path, heard)
    scene.look(hangs=True, paged=False)
    scene.look(hangs=True, blind=True)
    assert not heard.lines
    scene.look(hangs=True)
    for _ in range(20):
        scene.look(hangs=False, blind=True)  # nobody knows whether it goes on
    scene.look(hangs=False)
    scene.look(hangs=True)  # a gap of a look is no end
    assert len(heard.lines) == 1


def test_who_has_no_user_s_name_gets_no_mail(tmp_path: Path, heard: Heard) -> None:
    for user in ("", "-oQ/tmp", "ada@evil.example,root", "ada\nBcc: all@example.org", "a b"):
        Scene(tmp_path, heard, user=user).look(hangs=True)
    assert not heard.lines


HOSTILE = "x\r\nBcc: all@example.org\r\n.\r\n<!channel> @here ```[a](http://evil)" + "y" * 5000


def test_what_a_job_writes_is_no_header_and_no_second_mail(tmp_path: Path, smtp: Smtp) -> None:
    send = by_mail("{user}@example.org", "judge@example.org", smtp.address)
    send("ada", "540", f"Job {HOSTILE}", HOSTILE)
    ((to, mail),) = smtp.taken
    assert to == "ada@example.org"
    assert mail["Bcc"] is None
    assert len(mail["Subject"]) <= 100
    assert len(mail.get_content().strip()) <= 700


def test_what_a_job_writes_mentions_nobody_in_a_channel(tmp_path: Path) -> None:
    hook = Webhook()
    with closing(hook):
        by_webhook(hook.file(tmp_path))("ada", "540", "Job 540", HOSTILE)
    (text,) = hook.texts
    assert text.startswith("For ada: ```")
    assert text.count("`") == 6
    assert "<!" not in text and "@here" not in text
    assert len(text) < 800


def test_a_server_that_is_away_or_refuses_is_counted_and_told_without_its_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Webhook(status=404)
    away = by_mail("{user}@example.org", "judge@example.org", ("127.0.0.1", 9))
    with closing(hook):
        scene = Scene(tmp_path, away, by_webhook(hook.file(tmp_path)))
        scene.look(hangs=True)
    assert scene.collector.collect().value(MESSAGES, "failed") == 2
    assert "no mail can be sent" in caplog.text
    assert "HTTP status 404" in caplog.text
    assert "secret" not in caplog.text


def test_nothing_is_sent_where_it_could_not_be_noted(tmp_path: Path, heard: Heard) -> None:
    (tmp_path / "full").touch()
    scene = Scene(tmp_path / "full", heard)
    scene.look(hangs=True)
    assert not heard.lines


def test_it_is_off_unless_a_way_is_set(tmp_path: Path) -> None:
    def made(**values: object) -> OwnerCollector:
        settings = {item.key: item.default for item in SPEC.settings()}
        chosen = settings | {f"{SPEC.prefix}{key}": value for key, value in values.items()}
        context = JudgeContext(JudgeOptions(case_dir=tmp_path), server=ServerOptions())
        collector = SPEC.make(chosen, context)
        assert isinstance(collector, OwnerCollector)
        return collector

    with pytest.raises(NoData):
        made().collect()
    assert made(mail="{user}@example.org").collect().value(MESSAGES, "sent") == 0
    with pytest.raises(ConfigError, match="webhook"):
        made(webhook_file=tmp_path / "webhook")


@pytest.mark.parametrize(
    "template",
    ["{user}", "a@example.org", "{user}@x\nBcc: y", "{user} <a@b>", "{user}{user}@x", "{0}@{user}"],
)
def test_an_address_that_is_none_is_refused(template: str) -> None:
    with pytest.raises(ValueError):
        address_template(template)
