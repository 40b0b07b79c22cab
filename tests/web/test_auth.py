"""Who gets through basic authentication, and what it costs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from tests.waiting import wait_for
from tests.web.http_helpers import Agent, Serve

Guarded = Callable[..., Agent]


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def guarded(serve: Serve, tmp_path: Path) -> Guarded:
    """Starts an agent for which alice and bob have passwords."""

    def start(**options: object) -> Agent:
        write_users(tmp_path, alice="wonder:land", bob="bübchen")
        return serve(web_config=tmp_path / "web.yml", **options)

    return start


def write_users(directory: Path, **users: str) -> None:
    lines = "".join(f"  {name}: {hashed(password)}\n" for name, password in users.items())
    (new := directory / "web.yml.new").write_text(f"basic_auth_users:\n{lines}")
    new.replace(directory / "web.yml")


def test_the_right_password_opens_every_page(guarded: Guarded) -> None:
    agent = guarded(routes={"/sd": lambda: ("text/plain", b"x")})
    for path in ("/metrics", "/", "/-/healthy", "/sd"):
        for user, password in (("alice", "wonder:land"), ("bob", "bübchen")):
            assert agent.get(path, Authorization=basic(user, password)).status == 200


def test_without_the_right_password_no_page_opens(guarded: Guarded) -> None:
    wrong = [
        None,
        basic("alice", "wonder"),
        basic("alice", ""),
        basic("alice", "bübchen"),
        basic("mallory", "wonder:land"),
        basic("", ""),
        basic("alice", "wonder:land" + "x" * 100),
        basic("alice", "wonder:land\0"),
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:wonder:land").decode(),
        "Bearer " + base64.b64encode(b"alice:wonder:land").decode(),
        basic("alice", "wonder:land") + ", " + basic("alice", "wonder:land"),
    ]
    agent = guarded()
    for header in wrong:
        for path in ("/metrics", "/-/healthy", "/no-such-page"):
            reply = agent.get(path, **({"Authorization": header} if header else {}))
            assert reply.status == 401
            assert reply.headers["WWW-Authenticate"].startswith('Basic realm="stagewatch"')
            assert b"gpu" not in reply.body


def test_a_scraper_that_comes_again_costs_no_bcrypt(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[bytes] = []
    real = bcrypt.checkpw

    def counting(password: bytes, hashed_password: bytes) -> bool:
        checks.append(password)
        return real(password, hashed_password)

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    agent = guarded()
    for _ in range(20):
        assert agent.get("/metrics", Authorization=basic("alice", "wonder:land")).status == 200
        assert agent.get("/metrics", Authorization=basic("alice", "wrong")).status == 401
        assert agent.get("/metrics", Authorization=basic("mallory", "wrong")).status == 401
    assert sorted(checks) == [b"wonder:land", b"wrong", b"wrong"]


def test_a_changed_password_holds_at_once_and_the_old_one_no_longer(
    guarded: Guarded, tmp_path: Path
) -> None:
    agent = guarded()

    def status(password: str) -> int:
        return agent.get("/metrics", Authorization=basic("alice", password)).status

    assert (status("wonder:land"), status("new")) == (200, 401)
    write_users(tmp_path, alice="new")
    wait_for(lambda: status("wonder:land") == 401, "the old password is refused")
    assert status("new") == 200
    assert agent.get("/", Authorization=basic("bob", "bübchen")).status == 401
