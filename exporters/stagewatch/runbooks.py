"""The runbooks of alerts as pages of the judge, and their address, for the links in alerts."""

from __future__ import annotations

import html
import re
import socket

from stagewatch.assets import assets
from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.config import show
from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.page import style
from stagewatch.judgement.collector import JudgeContext, JudgeOptions
from stagewatch.web.config_file import read_web_config

PATH = "/runbooks/"
PLACE = Metric(
    "stagewatch_runbooks_info",
    "gauge",
    "1, with the address below which browsers find the runbook of an alert, as ALERT.md. Links in "
    "alerts begin with it.",
    ("url",),
)
_HTML = "text/html; charset=utf-8"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title} · stagewatch</title>
<style>{style}
main {{ padding-top: 22px; }}
h2 {{ padding: 8px 0 0; }}
main p, main li {{ max-width: 90ch; }}
pre {{ padding: 12px 16px; overflow-x: auto; background: var(--soft); }}
th, td {{ white-space: normal; vertical-align: top; }}
</style>
</head>
<body><main>{body}</main>
<footer><a href="./">All runbooks</a> <a href="/">Status</a></footer>
</body>
</html>
"""


def index() -> tuple[str, bytes]:
    """A page that names all runbooks."""
    names = sorted(_texts())
    items = "".join(f'<li><a href="{name}.md">{name}</a></li>' for name in names)
    return _page("Runbooks", f"<h1>Runbooks</h1><ul>{items}</ul>")


def page(name: str) -> tuple[str, bytes] | None:
    """The page of an alert's runbook, with or without `.md`; None if there is no such alert."""
    from markdown_it import MarkdownIt  # takes memory that only readers need

    name = name.removesuffix(".md")
    text = _texts().get(name)
    if text is None:
        return None
    text = re.sub(r"\[([^]]*)\]\(\.\.[^)]*\)", r"\1", text)  # pages of the documentation
    return _page(name, MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def _texts() -> dict[str, str]:
    """The runbooks in Markdown, by the names of their alerts."""
    return {file.stem: file.read_text("utf-8") for file in assets("alerts").glob("runbooks/*.md")}


def _page(title: str, body: str) -> tuple[str, bytes]:
    text = _PAGE.format(
        title=html.escape(title), style=style("stagewatch.web", "status.css"), body=body
    )
    return _HTML, text.encode()


def place(options: JudgeOptions) -> str:
    """The address at which browsers find the runbooks of a judge: `url`, else by the name of this
    machine, or the one address that the judge listens on."""
    if options.url:
        return options.url.rstrip("/") + PATH.rstrip("/")
    host, port = options.listen
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = socket.getfqdn()
    secured = options.web_config is not None and read_web_config(options.web_config).tls
    return f"{'https' if secured else 'http'}://{show((host, port))}{PATH.rstrip('/')}"


class RunbooksCollector(Collector):
    """Exports the address of the runbooks."""

    def __init__(self, url: str) -> None:
        self._samples = Samples()
        self._samples.add(PLACE, 1, url)

    def collect(self) -> Samples:
        return self._samples


SPEC: CollectorSpec[JudgeContext] = CollectorSpec(
    name="runbooks",
    help="where this judge serves the runbooks of alerts",
    interval=60,
    options=NoOptions,
    build=lambda _, context: RunbooksCollector(place(context.options)),
)
