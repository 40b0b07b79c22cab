"""The Prometheus API, against a server that answers what it is told."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import certifi
import pytest

from stagewatch.core.errors import ConfigError, SourceError
from stagewatch.prometheus.api import MAX_POINTS, PrometheusApi, Series, Track
from stagewatch.prometheus.options import PrometheusOptions
from tests.serving import Reply, Request, WebServer
from tests.web.certificates import Authority, Issued


class Server(WebServer):
    """One answer to everything."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.asked: list[str] = []
        self.authorization: str | None = None
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        self.asked.append(request.path)
        self.authorization = request.headers["Authorization"]
        return Reply(self.body, self.status)

    def answer(self, data: Any) -> None:
        """Success, with this data."""
        self.body = json.dumps({"status": "success", "data": data}).encode()

    def encrypt(self, issued: Issued, authority: Authority) -> None:
        """From now on by TLS, for clients with a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = f"https://localhost:{self.port}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def api(server: Server) -> Iterator[PrometheusApi]:
    api = PrometheusApi(server.url + "/", timeout=30)
    yield api
    api.close()


def test_a_vector_is_read(server: Server, api: PrometheusApi) -> None:
    sample = {"metric": {"job_id": "540"}, "value": [1732458600, "412.5"]}
    server.answer({"resultType": "vector", "result": [sample]})
    assert api.query("up == 1 & x") == [Series({"job_id": "540"}, 412.5)]
    api.query("up", 1732458600.5)
    assert server.asked == [
        "/api/v1/query?query=up+%3D%3D+1+%26+x",
        "/api/v1/query?query=up&time=1732458600.500",
    ]


def test_an_error_of_the_server_is_told(server: Server, api: PrometheusApi) -> None:
    server.status = 400
    server.body = json.dumps({"status": "error", "error": "parse error: unexpected <eof>"}).encode()
    with pytest.raises(SourceError, match="parse error: unexpected <eof>"):
        api.query("up{")


def test_a_long_range_is_asked_in_pieces_and_put_together(
    server: Server, api: PrometheusApi
) -> None:
    values = [[10, "1"], [20, "NaN"], [30, "2"]]
    server.answer({"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": values}]})
    found = api.query_range("up", 0, MAX_POINTS * 10.0, 10)
    assert found == [Track({"a": "b"}, [(10, 1.0), (30, 2.0)])]
    last = (MAX_POINTS - 1) * 10
    assert [path.partition("&nocache=1&")[2] for path in server.asked] == [
        f"start=0.000&end={last}.000&step=10",
        f"start={last + 10}.000&end={last + 10}.000&step=10",
    ]


def test_stored_samples_are_asked_for_an_hour_at_a_time(server: Server, api: PrometheusApi) -> None:
    server.answer({"resultType": "matrix", "result": []})
    assert api.samples("up", 0, 5400) == []
    assert server.asked == [
        "/api/v1/query?query=up%5B3600000ms%5D&time=3600.000",
        "/api/v1/query?query=up%5B1800000ms%5D&time=5400.000",
    ]


def test_a_credential_is_sent_only_where_one_is_given(server: Server, api: PrometheusApi) -> None:
    server.answer({"resultType": "vector", "result": []})
    api.query("up")
    assert server.authorization is None
    known = PrometheusApi(server.url, authorization="Bearer secret")
    known.query("up")
    known.close()
    assert server.authorization == "Bearer secret"


@pytest.mark.parametrize("trusting", ["ca_file", "insecure"])
def test_a_server_behind_tls_is_asked_as_the_options_say(
    server: Server,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusting: str,
) -> None:
    """Whatever bundle of authorities the environment names for requests."""
    issued, mine = authority.issue(), authority.issue("reader")
    server.encrypt(issued, authority)
    (tmp_path / "password").write_text("reader:s3cret\n")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    options = PrometheusOptions(
        url=server.url,
        timeout=30.0,
        basic_auth_file=tmp_path / "password",
        client_cert_file=mine.certificate,
        client_key_file=mine.key,
        **({"ca_file": authority.file} if trusting == "ca_file" else {"insecure": True}),
    )
    server.answer({"resultType": "vector", "result": []})
    api = PrometheusApi.of(options)
    assert api.query("up") == []
    api.close()
    assert server.authorization == "Basic cmVhZGVyOnMzY3JldA=="
    doubting = PrometheusApi.of(replace(options, ca_file=None, insecure=False))
    with pytest.raises(SourceError, match="its certificate is not accepted"):
        doubting.query("up")
    doubting.close()


@pytest.mark.parametrize("name", ["ca_file", "client_cert_file", "bearer_token_file"])
def test_a_file_of_no_use_is_named_with_its_flag(name: str, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(b"\xff")
    options = PrometheusOptions(**{name: file})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} {file}: "):
        PrometheusApi.of(options)
