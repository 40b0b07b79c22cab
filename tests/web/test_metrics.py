"""What a scraper sees."""

from __future__ import annotations

import gzip
import http.client
import platform

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, gpus, nothing, ranks

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


def names(text: str) -> set[str]:
    return {sample.name for family in parse_text(text) for sample in family.samples}


def collectors(text: str) -> set[str]:
    return {
        sample.labels["collector"]
        for family in parse_text(text)
        for sample in family.samples
        if "collector" in sample.labels
    }


def test_text_is_served_to_whoever_asks_for_nothing_else(settled: Serve) -> None:
    reply = settled("hang").get("/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = names(reply.text)
    assert {"gpu_info", "rl_rank_step", "fault_injection_active"} <= found
    assert {"stagewatch_collector_success", "process_resident_memory_bytes"} <= found
    assert "# EOF" not in reply.text


@pytest.mark.parametrize("accept", [PROMETHEUS_3, "application/openmetrics-text; version=1.0.0"])
def test_openmetrics_is_served_to_prometheus(settled: Serve, accept: str) -> None:
    reply = settled("hang").get("/metrics", Accept=accept)
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert reply.text.endswith("\n# EOF\n")
    assert reply.text.count("# EOF") == 1
    families = {family.name for family in parse_openmetrics(reply.text)}
    assert {"gpu_info", "rl_rank_cpu_seconds", "process_cpu_seconds"} <= families


@pytest.mark.parametrize(
    "accept", ["text/plain", "application/openmetrics-text;version=abc", "image/png", ",;=", ""]
)
def test_text_is_served_where_openmetrics_is_not_understood(settled: Serve, accept: str) -> None:
    reply = settled("healthy").get("/metrics", Accept=accept)
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert "gpu_info" in names(reply.text)


def test_both_formats_hold_the_same_series(settled: Serve) -> None:
    agent = settled("hostile")

    def series(families: object) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in families
            for sample in family.samples
        }

    text = series(parse_text(agent.get("/metrics").text))
    openmetrics = series(parse_openmetrics(agent.get("/metrics", Accept=PROMETHEUS_3).text))
    assert text == openmetrics


def test_the_version_is_told(settled: Serve) -> None:
    families = parse_text(settled().get("/metrics").text)
    build = next(family for family in families if family.name == "stagewatch_build_info")
    assert build.samples[0].labels["python"] == platform.python_version()
    assert build.samples[0].labels["version"]


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_gzip_is_served_where_it_is_accepted(settled: Serve, path: str) -> None:
    agent = settled("hang")
    packed = agent.get(path, Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert int(packed.headers["Content-Length"]) == len(packed.body)
    plain = agent.get(path, Accept_Encoding="identity")
    assert plain.headers["Content-Encoding"] is None
    assert "Accept-Encoding" in plain.headers["Vary"]
    assert len(packed.body) < len(plain.body) / 3
    assert b"gpu" in gzip.decompress(packed.body)


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q = 0.000", False),
        ("*, gzip;q=0", False),
        ("br", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_a_refusal_of_gzip_is_understood(settled: Serve, accepted: str, expected: bool) -> None:
    reply = settled("hang").get("/metrics", Accept_Encoding=accepted)
    assert (reply.headers["Content-Encoding"] == "gzip") is expected


def test_collect_serves_only_the_named_collectors(settled: Serve) -> None:
    text = settled("hang").get("/metrics?collect[]=gpu&collect%5B%5D=faults").text
    assert collectors(text) == {"gpu", "faults"}
    found = names(text)
    assert {"gpu_info", "fault_injection_active", "stagewatch_build_info"} <= found
    assert "rl_rank_step" not in found


def test_exclude_leaves_the_named_collectors_out(settled: Serve) -> None:
    text = settled("hang").get("/metrics?exclude[]=gpu").text
    assert "gpu" not in collectors(text)
    assert "gpu_info" not in names(text)
    assert "rl_rank_step" in names(text)


@pytest.mark.parametrize("parameter", ["collect[]", "exclude[]"])
def test_an_unknown_collector_is_refused_with_those_that_exist(
    settled: Serve, parameter: str
) -> None:
    reply = settled({"gpu": gpus, "ranks": ranks}).get(f"/metrics?{parameter}=gpus%0d%0aX:1")
    assert reply.status == 400
    assert "there are: gpu, ranks" in reply.text
    assert reply.headers["X"] is None


def test_collect_and_exclude_together_are_refused(settled: Serve) -> None:
    reply = settled("healthy").get("/metrics?collect[]=gpu&exclude[]=ranks")
    assert reply.status == 400
    assert "together" in reply.text


def test_a_thousand_parameters_are_refused(settled: Serve) -> None:
    assert settled("healthy").get("/metrics?" + "&".join(["a=1"] * 1000)).status == 400


def test_other_parameters_are_ignored(settled: Serve) -> None:
    assert "gpu_info" in settled("healthy").get("/metrics?target=x&debug").text


def test_head_has_the_headers_of_get_and_no_body(settled: Serve) -> None:
    agent = settled({"gpu": gpus})
    head = agent.get("/-/healthy", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == agent.get("/-/healthy").headers["Content-Length"]


def test_one_connection_serves_many_scrapes(settled: Serve) -> None:
    client = http.client.HTTPConnection(*settled("healthy").address, timeout=30)
    client.connect()
    sock = client.sock
    for _ in range(5):
        client.request("GET", "/metrics")
        assert client.getresponse().read()
        assert client.sock is sock
    client.close()


def test_a_stuck_collector_is_absent_and_named_while_the_others_are_served(serve: Serve) -> None:
    agent = serve({"gpu": Hangs(), "ranks": ranks}, interval=0.05)
    while 'stagewatch_collector_stuck_seconds{collector="gpu"} 0' in agent.get("/metrics").text:
        pass
    text = agent.get("/metrics").text
    assert 'stagewatch_collector_success{collector="gpu"} 0' in text
    assert "rl_rank_step" in text
    assert "gpu_info" not in text
    assert agent.get("/-/healthy").status == 200
    assert agent.get("/-/ready").status == 200
    assert agent.get("/").status == 200


def test_a_collector_that_found_nothing_adds_nothing(settled: Serve) -> None:
    found = names(settled({"gpu": nothing}).get("/metrics?collect[]=gpu").text)
    assert all(name.startswith(("stagewatch_", "process_")) for name in found)
