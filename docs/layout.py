"""Lays the documentation site out: a hook of MkDocs, see mkdocs.yml.

Pages lie where they are read on a forge: runbooks beside the alerts, the contributor's page at the
top.  The site takes them from there, and links that lead out of it become links to the source.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "deploy/scale/README.md": "scale.md",
    "deploy/slurm/prolog.md": "slurm-prolog.md",
    "tests/hangbench/README.md": "hangbench.md",
    "README.md": "index.md",
}
"""Where each page from outside of docs/ lies on the site; the home page stands for README.md."""

TITLES = {"gpu": "GPUs", "self": "stagewatch itself", "stalls": "Jobs that hang"}
"""Of files of rules whose names do not say it; see `alerts`."""

SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and the list of alerts."""
    for source, place in ELSEWHERE.items():
        if place != "index.md":
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for runbook in sorted((ROOT / "alerts" / "runbooks").glob("*.md")):
        place = f"runbooks/{runbook.name}"
        files.append(File.generated(config, place, abs_src_path=str(runbook)))
        config.nav[_tab(config, "Alerts")]["Alerts"].append({runbook.stem: place})
    files.append(File.generated(config, "alerts.md", content=alerts()))
    return files


def _tab(config: MkDocsConfig, title: str) -> int:
    """The place of a tab in the navigation."""
    return next(place for place, tab in enumerate(config.nav) if title in tab)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link to where its page lies on the site, or to the source."""
    if page.file.abs_src_path is None:
        return markdown
    source = Path(page.file.abs_src_path)
    code = [match.span() for match in CODE.finditer(markdown)]

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        inside = any(start <= match.start() < end for start, end in code)
        if inside or not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(source.parent / target)).relative_to(ROOT)
        if (place := _place(path)) and files.get_file_from_path(place):
            here = PurePosixPath(page.file.src_uri).parent
            return f"[{text}]({os.path.relpath(place, here)}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # MkDocs names it
        return _source(text, path, config)

    return LINK.sub(link, markdown)


def _place(path: Path) -> str | None:
    """Where a file of the repository lies on the site."""
    name = path.as_posix()
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    for folder, place in (("docs/", ""), ("alerts/runbooks/", "runbooks/")):
        if name.startswith(folder):
            return place + name.removeprefix(folder)
    return "alerts.md" if name == "alerts/runbooks" else None


def _source(text: str, path: Path, config: MkDocsConfig) -> str:
    """A link to a source file; its path alone where no forge is named."""
    if not config.repo_url:
        return text if path.name in text else f"{text} (`{path.as_posix()}`)"
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"[{text}]({config.repo_url.rstrip('/')}/{kind}/main/{path.as_posix()})"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Have the search work without a server, and without a script from elsewhere."""
    return output.replace(SHIM, "../" * page.url.count("/") + "search.js")


def alerts() -> str:
    """The page that lists all alerts by file, with what each says."""
    parts = [
        "# Alerts\n",
        "Each alert has a runbook: what it means, how to confirm it, what to do, and when it is",
        "wrong. *critical* wakes somebody, *warning* is for today, *info* is good to know",
        "([who is told what](operating.md#who-is-told-what)).\n",
    ]
    for file in sorted((ROOT / "alerts").glob("*.rules.yaml")):
        rows = _rows(file)
        if rows:
            name = file.name.removesuffix(".rules.yaml")
            parts += [f"## {TITLES.get(name, name.replace('-', ' ').capitalize())}\n"]
            parts += ["| alert | severity | says |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(parts)


def _rows(file: Path) -> list[str]:
    """A row for each alert of a file; severities of one name stand in one row."""
    found: dict[str, tuple[list[str], str]] = {}
    for group in yaml.safe_load(file.read_text())["groups"]:
        for rule in group["rules"]:
            if name := rule.get("alert"):
                severities, _ = found.setdefault(name, ([], _plain(name)))
                severities.append(rule["labels"].get("severity", ""))
    return [
        f"| [{name}](runbooks/{name}.md) | {', '.join(dict.fromkeys(severities))} | {says} |"
        for name, (severities, says) in found.items()
    ]


def _plain(alert: str) -> str:
    """The first sentence of the alert's runbook."""
    runbook = (ROOT / "alerts" / "runbooks" / f"{alert}.md").read_text()
    text = " ".join(re.sub(r"^#.*$", "", runbook, flags=re.MULTILINE).split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", text, maxsplit=1)[0].replace("|", "\\|")
