"""Sends one line to one user: by mail, to a webhook of Slack or Mattermost, or as a job's comment.

What users write (jobs, stages, files) stands in it: it is printable, of bounded length, and nothing
in it is a header, a mention or markup.
"""

from __future__ import annotations

import re
import smtplib
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Any

import requests

from stagewatch.act.forms import PREFIX
from stagewatch.core.access import secret
from stagewatch.core.config import text
from stagewatch.core.errors import ConfigError, SourceError
from stagewatch.core.words import printable
from stagewatch.prometheus.failure import why_unanswered

SECONDS = 10.0
MOST_SUBJECT, MOST_LINE = 100, 700
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TEMPLATE = re.compile(r"[A-Za-z0-9_.+{}-]{1,64}@[A-Za-z0-9{}][A-Za-z0-9.{}-]{0,200}")

Send = Callable[[str, str, str, str], object]
"""Sends a message to a user (user, job, subject, line).  Raises `SourceError` on failure."""


def address_template(value: Any) -> str:
    """an address with {user} in it, as {user}@example.org, or empty"""
    if value and (not _TEMPLATE.fullmatch(text(value)) or value.count("{user}") != 1):
        raise ValueError
    if re.search(r"[{}]", text(value).replace("{user}", "")):
        raise ValueError
    return text(value)


def is_user(name: str) -> bool:
    """Whether a user's name can be part of an address."""
    return bool(_USER.fullmatch(name))


def by_mail(template: str, sender: str, server: tuple[str, int]) -> Send:
    """By an SMTP server that relays for this machine."""

    def send(user: str, job_id: str, subject: str, line: str) -> None:
        message = EmailMessage()
        message["From"], message["To"] = sender, template.replace("{user}", user)
        message["Subject"] = printable(subject, MOST_SUBJECT)
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="stagewatch")
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
        message.set_content(f"{printable(line, MOST_LINE)}\n")
        try:
            with smtplib.SMTP(*server, timeout=SECONDS) as smtp:
                smtp.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            why = printable(str(getattr(error, "strerror", None) or error), 200)
            raise SourceError(f"no mail can be sent: {why}") from error

    return send


def by_webhook(file: Path) -> Send:
    """To the URL in a file, since it is secret.  Raises `ConfigError` if the file has none."""
    url = secret(file, "the webhook")
    if not re.fullmatch(r"https?://\S+", url):
        raise ConfigError(f"the webhook {file}: must hold one URL")

    def send(user: str, job_id: str, subject: str, line: str) -> None:
        body = {"text": f"For {user}: ```{harmless(printable(line, MOST_LINE))}```"}
        try:
            answer = requests.post(url, json=body, timeout=SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            why = why_unanswered(error, SECONDS)
            raise SourceError(f"the webhook does not answer: {why}") from error
        if not answer.ok:
            raise SourceError(f"the webhook refuses the message: HTTP status {answer.status_code}")

    return send


def by_comment(comment_job: Callable[[str, str], object]) -> Send:
    """As the comment of the job in Slurm."""

    def send(user: str, job_id: str, subject: str, line: str) -> None:
        comment_job(job_id, PREFIX + re.sub(r"[^A-Za-z0-9 .,:;()/+_-]", "_", line[:MOST_LINE]))

    return send


def harmless(line: str) -> str:
    """Text for a code block of Slack or Mattermost that mentions nobody.

    https://docs.slack.dev/messaging/formatting-message-text/#escaping
    """
    escaped = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("`", "'").replace("@", "@\u200b")
