"""The judge's collector that sends the owner of a job one line when it hangs, and one at the end.

That is two messages a job at most.  A message is noted before it is sent: a judge that was started
again sends none twice, and one that cannot be sent is lost.  Of several judges the oldest sends, by
what their Prometheus shows of them; the others note what it does, to go on where it ends.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stagewatch.act import message
from stagewatch.act.collector import MOST_REMEMBERED, REMEMBERED_SECONDS, fresh
from stagewatch.act.site import HOUR_SECONDS
from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import address, option, path
from stagewatch.core.errors import ConfigError, NoData, SourceError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.core.state_file import StateFile, moment, text, whole
from stagewatch.core.words import duration, printable
from stagewatch.judgement.collector import JudgeContext
from stagewatch.judgement.from_prometheus import JobKey, Queries, job_key, matchers_of, owners
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.watch import Judged, Look

log = logging.getLogger(__name__)

OVER_SECONDS = 60.0
"""Seconds without trouble after which a job's trouble is over."""
MOST_SHOWN = 256
MOST_AT_ONCE = 16

MESSAGES = counter(
    "rl_judge_owner_messages_total", "Messages to owners of jobs: sent or failed.", ("result",)
)


SINCE = gauge(
    "rl_judge_owner_since_timestamp_seconds",
    "Since when this judge sends lines to the owners of jobs; of several judges, only the one "
    "with the earliest time sends.",
)
TOLD = gauge(
    "rl_judge_owner_told",
    "Messages that the judge sent about a job, for an hour after the last: 1, or 2 with its end.",
    ("cluster", "job_id"),
)


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """How owners of jobs get their lines; nothing is sent unless one of the ways is set."""

    mail: str = option(
        "",
        "address of a job's owner, as {user}@example.org",
        parse=message.address_template,
    )
    mail_from: str = option("stagewatch@localhost", "address that mail comes from")
    smtp: tuple[str, int] = option(
        ("127.0.0.1", 25), "server that relays it, without TLS or password", parse=address
    )
    webhook_file: Path | None = option(
        None, "file with the URL of a Slack or Mattermost webhook, which gets all lines", parse=path
    )
    comment: bool = option(
        False,
        "also write the line into the job's comment in Slurm, unless its user has written one",
    )
    bin_dir: Path | None = option(
        None, "directory of Slurm's commands, where they are not on PATH", parse=path
    )
    next: str = option(
        "stagewatch inspect --job {job}",
        "command at the end of the line; {job}: the job, {node}: the node of the first rank at "
        "fault",
    )


@dataclass(frozen=True, slots=True)
class Told:
    """The lines that the owner of a job has got."""

    user: str
    since: float
    """When it stopped; Unix seconds."""
    gpus: int
    ended: bool = False
    """Whether the owner has also got the line that the trouble is over."""

    def cost(self, until: float) -> str:
        """What the trouble has cost."""
        return f"{self.gpus * max(0.0, until - self.since) / 3600:.1f} GPU-hours"


class OwnerCollector(Collector):
    """Sends the messages.  `api`: Prometheus, which knows the owners."""

    def __init__(
        self,
        context: JudgeContext,
        api: Queries | None,
        send: Sequence[message.Send],
        state: StateFile,
        command: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`send`: the ways to send; empty if nobody is told."""
        self._context = context
        self._api = api
        self._send = send
        self._state = state
        self._command = command
        self._clock = clock
        self._began = clock()
        self._told: dict[JobKey, Told] = state.load(_read) or {} if send else {}
        self._over: dict[JobKey, float] = {}
        """Since when each job with a message has been without trouble."""
        self._sent: dict[JobKey, tuple[int, float]] = {}
        """The number of messages that this judge has sent lately, and the time of the last."""
        self._counts: Counter[str] = Counter()

    def collect(self) -> Samples:
        if self._api is None or not self._send:
            raise NoData("no way to send lines to owners is set")
        now = self._clock()
        if look := fresh(self._context, now):
            new, due = self._new(look), self._due(look, now)
            judges = _judges(self._api) if new or due else []
            if self._began in judges:  # else it is not scraped yet, and unknown to the others
                oldest = self._began == min(judges)
                self._tell_of_new(self._api, look, new, oldest)
                self._tell_of_ended(self._api, look, due, oldest)
        out = Samples()
        out.add(SINCE, self._began)
        self._sent = {key: one for key, one in self._sent.items() if now - one[1] < HOUR_SECONDS}
        for key, (messages, _) in list(self._sent.items())[-MOST_SHOWN:]:
            out.add(TOLD, messages, *key)
        for result in ("sent", "failed"):
            out.add(MESSAGES, self._counts[result], result)
        return out

    def _new(self, look: Look) -> dict[JobKey, Judged]:
        return {
            key: job
            for key, job in look.jobs.items()
            if key not in self._told and any(state.paged for state in job.states)
        }

    def _tell_of_new(
        self, api: Queries, look: Look, new: Mapping[JobKey, Judged], oldest: bool
    ) -> None:
        users = owners(api, list(new), look.time) if new else {}
        heard = _heard(api, list(new)) if users else {}
        for key in [key for key in new if message.is_user(users.get(key, ""))][:MOST_AT_ONCE]:
            job = new[key]
            told = _told(users[key], job, look.time)
            self._note(key, replace(told, ended=heard.get(key, 0) > 1), look.time)
            if oldest and key not in heard:
                happened, node = _headline(job)
                command = self._command.replace("{job}", key[1]).replace("{node}", node)
                line = f"{happened} It has cost {told.cost(look.time)} so far. Next: {command}"
                self._to(key, told, f"Job {key[1]} stands still", line)

    def _due(self, look: Look, now: float) -> list[JobKey]:
        """The jobs whose trouble is over and whose owner still lacks the second line."""
        over = [k for k, told in self._told.items() if not told.ended and k not in look.jobs]
        self._over = {key: self._over.get(key, now) for key in over}
        return [key for key, since in self._over.items() if now - since >= OVER_SECONDS]

    def _tell_of_ended(self, api: Queries, look: Look, due: Sequence[JobKey], oldest: bool) -> None:
        heard = _heard(api, due) if due else {}
        for key in due[:MOST_AT_ONCE]:
            until, told = self._over[key], self._told[key]
            lives = bool(
                api.query(f"count(rl_rank_up{{{matchers_of([key])}}} == 1) > 0", look.time)
            )
            became = "goes on" if lives else "has ended"
            ended = replace(told, ended=True)
            self._note(key, ended, look.time)
            if oldest and heard.get(key, 0) < 2:
                stood = duration(max(0.0, until - told.since))
                line = f"Job {key[1]} {became}. It stood still for {stood}: {told.cost(until)}."
                self._to(key, ended, f"Job {key[1]} {became}", line)

    def _note(self, key: JobKey, told: Told, now: float) -> None:
        kept = {
            k: one
            for k, one in self._told.items()
            if not one.ended or now - one.since < REMEMBERED_SECONDS
        }
        self._told = dict([*kept.items(), (key, told)][-MOST_REMEMBERED:])
        self._state.save({"\0".join(k): asdict(one) for k, one in self._told.items()})

    def _to(self, key: JobKey, told: Told, subject: str, line: str) -> None:
        if not self._state.ok:  # a restart would send it again
            self._counts["failed"] += 1
            return
        self._sent[key] = 1 + told.ended, self._clock()
        for send in self._send:
            try:
                send(told.user, key[1], subject, line)
                self._counts["sent"] += 1
            except SourceError as error:
                self._counts["failed"] += 1
                log.warning("the owner of job %s gets no line: %s", printable(key[1], 80), error)


def _judges(api: Queries) -> list[float]:
    """When each of the judges that send lines to owners started."""
    return [one.value for one in api.query(SINCE.name)]


def _heard(api: Queries, keys: Sequence[JobKey]) -> Mapping[JobKey, float]:
    """The number of messages that all judges have sent, by job."""
    asked = f"max_over_time({TOLD.name}{{{matchers_of(keys)}}}[{REMEMBERED_SECONDS:.0f}s])"
    found: dict[JobKey, float] = {}
    for one in api.query(asked):
        key = job_key(one.labels)
        found[key] = max(one.value, found.get(key, 0.0))
    return found


def _told(user: str, job: Judged, now: float) -> Told:
    stalled = [state for state in job.states if state.verdict.stalled]
    silent = max((state.silent_seconds or 0.0 for state in stalled), default=0.0)
    return Told(user, now - silent, sum(state.gpus for state in stalled))


def _headline(job: Judged) -> tuple[str, str]:
    """The status page's words for a job, and the node of the first rank at fault."""
    verdicts = [state.verdict for state in job.states]
    told = findings_of(verdicts, [rank for one in verdicts for rank in one.ranks])
    nodes = [rank.node for one in verdicts for rank in one.culprits]
    return (told[0].headline if told else ""), (nodes[0] if nodes else "")


def _read(content: Any) -> dict[JobKey, Told]:
    found = {}
    for name, one in content.items():
        cluster, job_id = text(name).split("\0")
        told = Told(text(one["user"]), moment(one["since"]), whole(one["gpus"]), bool(one["ended"]))
        found[cluster, job_id] = told
    return found


def _build(options: OwnerOptions, context: JudgeContext) -> OwnerCollector:
    from stagewatch.act.slurm import SlurmSite
    from stagewatch.prometheus.api import PrometheusApi

    ways: list[message.Send] = []
    if options.mail:
        ways.append(message.by_mail(options.mail, options.mail_from, options.smtp))
    if options.webhook_file is not None:
        ways.append(message.by_webhook(options.webhook_file))
    if options.comment:
        ways.append(message.by_comment(SlurmSite(options.bin_dir).comment_job))
    if ways and context.server is None:
        raise ConfigError("collector owner asks the server of collector judge: run both")
    api = PrometheusApi.of(context.server) if ways and context.server else None
    state = StateFile(
        context.options.case_dir / "told.json",
        lost="an owner may get a line again",
        make_directory=True,
    )
    return OwnerCollector(context, api, ways, state, options.next)


SPEC = CollectorSpec(
    name="owner",
    help="sends the owner of a job one line when it hangs, and one when that has ended",
    interval=5,
    options=OwnerOptions,
    build=_build,
)
