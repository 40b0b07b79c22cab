"""Films the status page of a node while a job hangs: the moving picture of the README.

`python -m tests.web.moving_picture docs/images/hang.gif`; it needs chromium (or $CHROMIUM) and
Pillow, which matplotlib brings.  Eight real processes sleep through their steps; one of them goes
into a reward function and stays there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from PIL import Image

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.waiting import wait_for

RANKS = 8
STEPS = 12
"""Before the hang; a stage that has shown less is given more time."""
SIZE = (1100, 600)
COLOURS = 200
HEALTHY_FRAMES, HUNG_FRAMES = 3, 2
"""Frames before the hang, and after the page names the line."""
FRAME_SECONDS, LAST_SECONDS = 1.2, 6.0
"""How long a frame is shown; the last one is there to be read."""
EVERY_SECONDS = 1.0
"""Between two frames, beside what the browser takes."""

TRAINER = """
import sys, threading, time
from pathlib import Path
import stagewatch

HANG, STUCK = Path(__file__).with_name("hang"), Path(__file__).with_name("stuck")
hang = threading.Event()

def length_reward(rank):
    if rank == 3 and HANG.exists():
        STUCK.touch()
        hang.wait()
    time.sleep(0.2)

def wait_for_peers():
    with stagewatch.collective("world", op="all_reduce", size=8):
        if STUCK.exists():
            hang.wait()
        time.sleep(0.4)

def main(rank):
    for step in range(1, 10_000):
        with stagewatch.stage("rollout", step=step):
            time.sleep(0.6)
        with stagewatch.stage("reward", step=step):
            length_reward(rank)
        with stagewatch.stage("train", step=step):
            wait_for_peers()

stagewatch.init("train", job_id=540, rank=int(sys.argv[1]))
main(int(sys.argv[1]))
"""


def film(target: Path) -> None:
    """Start a job and an agent, and write what the page shows of them."""
    with tempfile.TemporaryDirectory() as directory, Children() as children:
        root = Path(directory)
        url = _start(root, children)
        frames = [_frame(url, root) for _ in range(HEALTHY_FRAMES)]
        (root / "hang").touch()
        left = HUNG_FRAMES
        while left:
            with urllib.request.urlopen(f"{url}live") as page:
                left -= b"has waited since" in (facts := page.read()) and b"length_reward" in facts
            frames.append(_frame(url, root))
            time.sleep(EVERY_SECONDS)
    _write(frames, target)


def _start(root: Path, children: Children) -> str:
    """The address of the agent's page, once it knows how long all ranks' stages take."""
    (ranks := root / "ranks").mkdir()
    program = root / "train.py"
    program.write_text(TRAINER)
    environ = os.environ | {"STAGEWATCH_DIR": str(ranks), "WORLD_SIZE": str(RANKS)}
    for rank in range(RANKS):
        log = root / f"rank-{rank}.log"
        children.start([sys.executable, str(program), str(rank)], environ=environ, log=log)
    url = f"http://127.0.0.1:{free_port()}/"
    options = ["--listen", url[7:-1], "--node-name", "gpu-17", "--record-dir", str(ranks)]
    options += ["--collector.incidents.dir", str(root / "incidents")]
    options += ["--no-ranks-by-environment", "--no-collector.canary.enabled"]
    agent = [sys.executable, "-m", "stagewatch.cli", "node", *options]
    children.start(agent, log=root / "agent.log")

    def taught() -> bool:
        try:
            with urllib.request.urlopen(f"{url}metrics") as page:
                steps = re.findall(rb"^rl_rank_step{.*} (\S+)$", page.read(), re.MULTILINE)
        except OSError:
            return False
        return len(steps) == RANKS and min(map(float, steps)) >= STEPS

    wait_for(taught, f"{STEPS} steps of {RANKS} ranks")
    return url


def _frame(url: str, root: Path) -> Image.Image:
    """What a browser shows now."""
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser is None:
        raise SystemExit("needs chromium, or $CHROMIUM")
    picture = root / "frame.png"
    quiet = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
    options = [*quiet, "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    options += ["--run-all-compositor-stages-before-draw"]  # no frame is drawn in part
    options += [f"--user-data-dir={root / 'browser'}", f"--window-size={SIZE[0]},{SIZE[1]}"]
    command = [browser, "--headless", *options, f"--screenshot={picture}", url]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with Image.open(picture) as shown:
        return shown.convert("RGB")


def _write(frames: list[Image.Image], target: Path) -> None:
    """All frames in the colours of the last, which has every one of them."""
    palette = frames[-1].quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    first, *rest = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames]
    times = [round(1000 * FRAME_SECONDS)] * len(rest) + [round(1000 * LAST_SECONDS)]
    first.save(target, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    film(Path(sys.argv[1]))
