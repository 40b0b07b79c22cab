"""Takes what Alertmanager sends: posts of every kind, and mail."""

from __future__ import annotations

from tests.serving import MailServer, Reply, Request, WebServer


class Listener(WebServer):
    """Takes whatever is posted, and mail, and remembers it."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], str]] = []
        self._smtp = MailServer()
        self.smarthost = f"127.0.0.1:{self._smtp.port}"
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        self.posts.append((request.path, dict(request.headers), request.body.decode()))
        body = b"<PublishResponse><PublishResult/></PublishResponse>"
        return Reply(body, 202 if request.path == "/pagerduty" else 200)

    @property
    def mails(self) -> list[str]:
        """The texts of the mails."""
        return [text for _, text in self._smtp.mails]

    def to(self, path: str) -> list[str]:
        """The bodies that were posted there."""
        return [body for where, _, body in self.posts if where == path]

    def close(self) -> None:
        """Listen no longer."""
        super().close()
        self._smtp.close()
