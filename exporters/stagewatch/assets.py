"""Writes out the alert rules with their runbooks and the dashboards, for a Prometheus and a Grafana
of yours: `stagewatch assets export DIR` fills DIR/alerts and DIR/dashboards, and writes the rules
for the Prometheus operator to DIR/kubernetes.  It writes the file for a site's own limits,
DIR/alerts/site.rules.yaml, once and never replaces it."""

from __future__ import annotations

import argparse
import contextlib
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import add_options, http_url, option, options_of
from stagewatch.core.errors import StagewatchError

_PACKAGE = Path(__file__).parent
_SITE = """\
# Limits of this site, which go before those of limits.rules.yaml.  Uncomment a line and change its
# number; Prometheus reads it when it reloads.  `stagewatch assets export` never replaces this file.
groups:
  - name: site
    interval: 15s
    rules:
"""
_SITE_FILE = "site.rules.yaml"
_KUBERNETES = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: stagewatch-{name}
  labels:
    app.kubernetes.io/name: stagewatch
spec:
{spec}"""


def assets(name: str) -> Path:
    """The directory `alerts` or `dashboards`: in the wheel, or beside the sources."""
    for candidate in (_PACKAGE / "_assets" / name, _PACKAGE.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise StagewatchError(f"this installation lacks its {name}: install stagewatch again")


def address(value: object) -> str:
    """an address that begins with http:// or https://, without blanks and quotes"""
    url = http_url(value).rstrip("/")
    if re.search(r"[\s\"'#{}<>\\]", url):
        raise ValueError
    return url


@dataclass(frozen=True, slots=True)
class AssetsOptions:
    """Options of `stagewatch assets`: the addresses in the links of alerts."""

    runbooks: str = option(
        "",
        "where your runbooks are: https://wiki.site/runbooks makes the alert NFSSlow link to "
        "https://wiki.site/runbooks/NFSSlow.md. If empty, links lead to the judge that Prometheus "
        "scrapes; without a judge they are paths, which Alertmanager's templates complete",
        parse=address,
    )
    grafana: str = option(
        "", "where your Grafana is, likewise, as https://grafana.site", parse=address
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch assets`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    export = actions.add_parser("export", help="write them to a directory", description=__doc__)
    export.add_argument("directory", type=Path, metavar="DIR", help="created if it does not exist")
    add_options(export, {"assets": AssetsOptions})


def run(arguments: argparse.Namespace) -> int:
    """Export; replaces files of an earlier export, and leaves others alone."""
    written = export(arguments.directory, options_of(arguments, AssetsOptions, "assets"))
    print(f"{len(written)} files are in {arguments.directory}")
    return 0


def export(directory: Path, links: AssetsOptions | None = None) -> list[Path]:
    """Write all files below `directory`, and return them.  Raises `StagewatchError`."""
    links = links or AssetsOptions()
    alerts, dashboards = assets("alerts"), assets("dashboards")
    content = {
        **{f"alerts/{name}": text for name, text in rules().items()},
        **{f"alerts/runbooks/{f.name}": f.read_text() for f in alerts.glob("runbooks/*.md")},
        **{f"dashboards/{f.name}": f.read_text() for f in dashboards.glob("generated/*.json")},
        "kubernetes/rules.yaml": kubernetes_rules(),
    }
    written = []
    try:
        for name, text in content.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_linked(text, links))
            written.append(target)
        site = directory / "alerts" / _SITE_FILE
        with contextlib.suppress(FileExistsError), site.open("x") as file:
            file.write(site_rules(alerts))
            written.append(site)
    except OSError as error:
        raise StagewatchError(f"cannot write to {error.filename}: {error.strerror}") from error
    return written


def rules() -> dict[str, str]:
    """The files of rules by name; those for dcgm-exporter are generated, see dcgm.rules.py."""
    alerts = assets("alerts")
    generator = alerts / "dcgm.rules.py"
    files = {file.name: file.read_text() for file in alerts.glob("*.rules.yaml")}
    files[generator.with_suffix(".yaml").name] = runpy.run_path(str(generator))["document"]()
    files.pop(_SITE_FILE, None)
    return dict(sorted(files.items()))


def kubernetes_rules() -> str:
    """A PrometheusRule of the Prometheus operator for each file; comments are kept."""
    documents = []
    for file, text in rules().items():
        spec = "".join(f"  {line}".rstrip() + "\n" for line in text.splitlines())
        name = file.removesuffix(".rules.yaml")
        documents.append(_KUBERNETES.format(name=name, spec=spec))
    return "---\n".join(documents)


def _linked(content: str, links: AssetsOptions) -> str:
    """A file of rules or a board with the links of alerts completed."""
    if links.runbooks:
        whole = f"runbook_url: '{links.runbooks}/"
        content = re.sub(r"runbook_url: '[^']*}}", lambda _: whole, content)
        content = content.replace("${runbooks:raw}", links.runbooks)
    if links.grafana:
        content = content.replace("dashboard_url: /d/", f"dashboard_url: {links.grafana}/d/")
    return content


def site_rules(alerts: Path) -> str:
    """Every limit with its default, in comments, for a site to record its own."""
    limits = (alerts / "limits.rules.yaml").read_text().partition("    rules:\n")[2]
    return _SITE + limits.partition("      # ---- what the rules read")[0].replace(
        "      - {record: limit:default:value", "      # - {record: site:limit:value"
    )
