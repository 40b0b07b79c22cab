"""Delay and loss by netem, in a kernel that has it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from stagewatch.faults.kinds.network import refuse_other
from tests.fakes import user_mode_linux

MODULES = ("sch_prio", "sch_netem", "cls_u32")
ROOT = Path(__file__).parents[3]

SCENE = """
import json, os, signal, socket, statistics, subprocess, sys, threading, time

def answer(port):
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while message := connection.recv(64):
            connection.sendall(message)

for port in (9001, 9002):
    threading.Thread(target=answer, args=(port,), daemon=True).start()
time.sleep(0.5)

def round_trip(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        times = []
        for _ in range(5):
            begun = time.monotonic()
            connection.sendall(b"x")
            connection.recv(64)
            times.append(time.monotonic() - begun)
    return statistics.median(times)

def look():
    return {"peer": round_trip(9001), "other": round_trip(9002), "root": root()}

def root():
    return subprocess.check_output(["tc", "qdisc", "show", "dev", "lo"], text=True)

def inject(*flags):
    argv = [sys.executable, "-m", "stagewatch.cli", "fault", "inject", *flags]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("in force"):
            break
    return process, said

found = {"before": look()}
process, said = inject("network-delay", "--target=127.0.0.1:9001", "--delay=300ms", "--for=600s")
found["said"], found["delayed"] = said, look()
second, found["second"] = inject("network-delay", "--target=127.0.0.1:9002", "--for=5s")
process.send_signal(signal.SIGKILL)
while "5357:" in root():
    time.sleep(0.1)
found["after"] = look()

process, said = inject(
    "network-delay", "--target=127.0.0.1:9001", "--delay=1ms", "--loss=100", "--for=600s"
)
with socket.socket() as connection:
    connection.settimeout(3)
    try:
        connection.connect(("127.0.0.1", 9001))
        found["lost"] = False
    except TimeoutError:
        found["lost"] = True
found["kept"] = round_trip(9002)
process.terminate()
process.wait()
found["undone"] = look()
subprocess.run("tc qdisc add dev lo root handle 7: prio".split(), check=True)
process, found["foreign"] = inject("network-delay", "--target=127.0.0.1:9001", "--for=5s")
found["end"] = root()
print("FOUND" + json.dumps(found))
"""


def test_netem_delays_and_loses_what_goes_to_the_peer_alone(tmp_path: Path) -> None:
    if reason := user_mode_linux.missing():
        pytest.skip(f"a kernel with netem {reason}")
    (tmp_path / "scene.py").write_text(SCENE)
    path = os.pathsep.join(str(Path(each).resolve()) for each in sys.path if each)
    settings = {
        "PYTHONPATH": f"{ROOT / 'exporters'}{os.pathsep}{path}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "STAGEWATCH_FAULT_DIR": "/run/faults",
        "STAGEWATCH_UNDO_DIR": "/run/undo",
    }
    exports = "\n".join(f"export {name}='{value}'" for name, value in settings.items())
    body = f"{exports}\nmkdir /run/faults\n{sys.executable} scene.py"
    said = user_mode_linux.run(tmp_path, body, MODULES)
    found = json.loads(said.partition("FOUND")[2])
    assert found["before"]["peer"] < 0.2
    assert found["delayed"]["peer"] > 0.29, found["said"]
    assert found["delayed"]["other"] < 0.2, "another port of the same host is not delayed"
    assert "has an injected fault already" in "".join(found["second"])
    assert found["after"]["peer"] < 0.2
    assert found["after"]["root"] == found["before"]["root"] == found["undone"]["root"]
    assert found["lost"] and found["kept"] < 0.2
    assert "queueing discipline of its own" in "".join(found["foreign"])
    assert "prio 7:" in found["end"]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, "no network device eth9"),
        ({"kind": "htb", "handle": "1:"}, r"of its own \(htb 1:\)"),
        ({"kind": "prio", "handle": "5357:"}, "has an injected fault already"),
    ],
)
def test_a_device_whose_queueing_would_be_lost_is_refused(
    found: dict[str, str] | None, problem: str
) -> None:
    with pytest.raises(StagewatchError, match=problem):
        refuse_other("eth9", found)
    refuse_other("eth0", {"kind": "mq", "handle": "0:"})
    refuse_other("lo", {})
