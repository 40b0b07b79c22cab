"""What an operator is told about a web-config file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch import cli
from stagewatch.core.errors import ConfigError
from stagewatch.web.config_file import read_web_config
from stagewatch.web.security import WebSecurity
from tests.web.certificates import Authority

HASH = "$2y$05$" + "a" * 53
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / "web.yml"
        file.write_text(text)
        return file

    return write


TLS = "tls_server_config:\n  cert_file: a\n  key_file: b\n  "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid YAML"),
        ("!!python/object/apply:os.system [id]", "not valid YAML"),
        ("tls_config: {}", "tls_config: is not supported; there are: tls_server_config"),
        ("tls_server_config: yes", "tls_server_config: must be a mapping"),
        ("tls_server_config: {cert_file: a}", "key_file: is missing"),
        (TLS + "cipher_suites: [x]", "cipher_suites: is not supported"),
        (TLS + "min_version: TLS10", "min_version = 'TLS10': must be one of TLS12, TLS13"),
        (TLS + "client_auth_type: RequireAnyClientCert", "must be one of NoClientCert, Request"),
        (TLS + "client_auth_type: RequireAndVerifyClientCert", "client_ca_file: goes together"),
        (TLS + "client_allowed_sans: [x]", "client_allowed_sans: goes together"),
        ("basic_auth_users: [alice]", "must be a mapping of user names"),
        ("basic_auth_users: {alice: hunter2}", "basic_auth_users.alice: must be a bcrypt hash"),
        (f"basic_auth_users: {{1: {HASH}}}", "1 must be a string"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "'a:b' must be a string without colons"),
        ("basic_auth_users: {a: $2y$31$" + "a" * 53 + "}", "cost must be 4 to 18"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(write: Write, text: str, told: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        read_web_config(file)
    message = str(caught.value)
    assert message.startswith(f"--web-config {file}: ")
    assert told in message
    assert "\n" not in message
    assert "hunter2" not in message


def test_a_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"web\.yml: No such file or directory$"):
        WebSecurity(tmp_path / "web.yml")


def test_an_encrypted_key_is_refused_without_asking(write: Write, authority: Authority) -> None:
    issued = authority.issue(password=b"secret")
    text = f"tls_server_config: {{cert_file: {issued.certificate}, key_file: {issued.key}}}"
    with pytest.raises(ConfigError, match="must not be encrypted"):
        WebSecurity(write(text))


@pytest.mark.parametrize(
    ("module", "text"), [("yaml", ""), ("bcrypt", f"basic_auth_users: {{alice: {HASH}}}")]
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    write: Write, monkeypatch: pytest.MonkeyPatch, module: str, text: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'stagewatch\[web-config\]'$"):
        read_web_config(write(text))


def test_check_config_looks_into_the_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", "--web-config", str(write(TLS))]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "/a: No such file" in said
    assert cli.main(["check-config", "--web-config", str(write(""))]) == 0
