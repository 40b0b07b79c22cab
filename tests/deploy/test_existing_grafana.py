"""The ways of docs/dashboards.md to load boards into a Grafana that exists, and alerts' links.

The fake speaks as much of Grafana's HTTP API as its documentation defines for folders
(https://grafana.com/docs/grafana/latest/developers/http_api/folder/) and dashboards
(https://grafana.com/docs/grafana/latest/developers/http_api/dashboard/).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.assets import export
from stagewatch.cli import main
from tests.serving import Reply, Request, WebServer

ROOT = Path(__file__).parents[2]
DASHBOARDS = (ROOT / "docs" / "dashboards.md").read_text()
TOKEN = "glsa_secret"


class FakeGrafana(WebServer):
    """Folders and dashboards by their uid, for whom the token allows."""

    def __init__(self) -> None:
        self.folders: dict[str, Any] = {}
        self.boards: dict[str, Any] = {}
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        status, content = 401, {"message": "Unauthorized"}
        if request.headers["Authorization"] == f"Bearer {TOKEN}":
            body = json.loads(request.body or b"null")
            status, content = self._answer(request.method, request.path, body)
        return Reply(json.dumps(content).encode(), status)

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        uid = path.removeprefix("/api/folders/")
        if method == "GET":
            return (200, self.folders[uid]) if uid in self.folders else (404, {"message": "-"})
        if path == "/api/folders":
            taken = body["uid"] in self.folders
            self.folders.setdefault(body["uid"], body)
            return 412 if taken else 200, body
        if path != "/api/dashboards/db":
            return 404, {"message": "Not found"}
        board = body["dashboard"]
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if board["uid"] in self.boards and not body["overwrite"]:
            return 412, {"status": "version-mismatch"}
        self.boards[board["uid"]] = body
        return 200, {"uid": board["uid"], "status": "success"}


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    """An empty one."""
    with closing(FakeGrafana()) as grafana:
        yield grafana


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """What a site has."""
    export(tmp_path / "site")
    return tmp_path / "site"


def boards() -> dict[str, Any]:
    """The generated ones by their uid."""
    files = (ROOT / "dashboards" / "generated").glob("*.json")
    return {board["uid"]: board for board in (json.loads(file.read_text()) for file in files)}


def script(holding: str) -> str:
    """The shell commands of the documentation that hold some text."""
    (found,) = (
        each for each in re.findall(r"```sh\n(.*?)```", DASHBOARDS, re.DOTALL) if holding in each
    )
    return str(found)


def shell(text: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it as somebody would who has these tools."""
    for tool in ("curl", "jq") if "curl" in text else ("kubectl",):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory), **environ}
    return subprocess.run(
        ["sh", "-c", text], cwd=directory, env=environ, capture_output=True, text=True, timeout=240
    )


def test_the_commands_load_every_board_and_load_it_again(
    grafana: FakeGrafana, exported: Path
) -> None:
    headers = exported / "headers"
    headers.write_text(f"Authorization: Bearer {TOKEN}\n")
    given = {"GRAFANA": grafana.url, "HEADERS": str(headers), "DIR": str(exported)}
    for _ in range(2):
        done = shell(script("api/dashboards/db"), exported, **given)
        assert done.returncode == 0, done.stderr
    assert list(grafana.folders) == ["stagewatch"]
    assert {uid: each["dashboard"] for uid, each in grafana.boards.items()} == boards()
    assert {each["folderUid"] for each in grafana.boards.values()} == {"stagewatch"}


def test_a_token_that_is_not_allowed_ends_the_commands(
    grafana: FakeGrafana, exported: Path
) -> None:
    headers = exported / "headers"
    headers.write_text("Authorization: Bearer wrong\n")
    given = {"GRAFANA": grafana.url, "HEADERS": str(headers), "DIR": str(exported)}
    done = shell(script("api/dashboards/db"), exported, **given)
    assert done.returncode == 1
    assert "401" in done.stderr
    assert not grafana.boards


def test_the_sidecar_gets_a_config_map_for_each_board(exported: Path) -> None:
    done = shell(script("kubectl create configmap"), exported, DIR=str(exported), NAMESPACE="m")
    assert done.returncode == 0, done.stderr
    text = (exported / "boards.yaml").read_text()
    maps = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    held = [json.loads(text) for each in maps for text in each["data"].values()]
    assert {board["uid"]: board for board in held} == boards()
    for each in maps:
        assert each["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert each["metadata"]["annotations"] == {"grafana_folder": "stagewatch"}
        assert len(json.dumps(each)) < 1 << 20  # what a ConfigMap may hold


def test_no_board_is_bound_to_a_data_source_or_an_id_of_ours() -> None:
    for uid, board in boards().items():
        assert board.get("id") is None, uid
        used = set(re.findall(r'"uid": "([^"]*)"', json.dumps(board))) - {uid}
        assert used <= {"${datasource}", "-- Grafana --", "-- Mixed --", "-- Dashboard --"}, uid


def annotations(directory: Path, name: str) -> list[str]:
    """Those of one name of every alert."""
    return [
        rule["annotations"][name]
        for file in sorted((directory / "alerts").glob("*.rules.yaml"))
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]
        for rule in group["rules"] or ()  # of the site, none yet
        if name in rule.get("annotations", {})
    ]


def test_alerts_link_to_where_a_site_has_its_runbooks_and_grafana(tmp_path: Path) -> None:
    given = ["assets", "export", str(tmp_path), "--runbooks", "https://wiki.site/run/"]
    assert main([*given, "--grafana", "https://grafana.site"]) == 0
    links = annotations(tmp_path, "runbook_url")
    assert links
    for link in links:
        base, _, name = link.rpartition("/")
        assert base == "https://wiki.site/run"
        assert (tmp_path / "alerts" / "runbooks" / name).is_file()
    boards = [file.read_text() for file in (tmp_path / "dashboards").glob("*.json")]
    assert "${runbooks" not in "".join(boards)
    assert sum('"https://wiki.site/run/${__value.text}.md"' in board for board in boards) == 2
    shown = annotations(tmp_path, "dashboard_url")
    assert shown
    assert all(link.startswith("https://grafana.site/d/stagewatch-") for link in shown)


@pytest.mark.parametrize("bad", ["wiki.site", "https://a b", r"https://a\b"])
def test_what_is_no_address_is_refused(
    tmp_path: Path, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assets", "export", str(tmp_path / "o"), "--runbooks", bad]) == 2
    assert "begins with http:// or https://" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
