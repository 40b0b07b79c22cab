"""Real judges under one Prometheus tell the owner of a job once, also a new one in their place."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

from stagewatch.act.owner import MESSAGES, SINCE
from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from stagewatch.judgement.facts import Inside
from stagewatch.prometheus.api import PrometheusApi
from tests.act.test_owner import Smtp
from tests.judgement.exported import export
from tests.judgement.jobs import LEFT, SPINNING, job
from tests.report.filled import Past, filled_prometheus
from tests.waiting import wait_for


def test_two_judges_tell_the_owner_once_and_a_new_one_knows_of_it(
    children: Children, tmp_path: Path
) -> None:
    now = time.time()
    made = Past(now - 900, now, step=5.0)
    hung = {"progress_age_seconds": 400.0, "inside": {"world": Inside("all_reduce", 398.0)}}
    left = LEFT | {"progress_age_seconds": 400.0, "node": "h3"}
    export(made, job(8, SPINNING | hung | {"node": "h1"}, rank_5=left))
    made.add("job:slurm_owner:info", 1.0, cluster="c", job_id="540", user="ada")
    made.add("up", 1.0, job="stagewatch", cluster="c", node="h1")
    ports = [free_port(), free_port()]
    targets = [f"127.0.0.1:{port}" for port in ports]
    url = filled_prometheus(children, tmp_path / "p", made, targets=targets)
    api = PrometheusApi(url)
    with closing(Smtp()) as smtp:
        argv = [sys.executable, "-m", "stagewatch.cli", "judge", f"--prometheus={url}"]
        argv += ["--collector.owner.mail={user}@example.org"]
        argv += [f"--collector.owner.smtp=127.0.0.1:{smtp.port}"]
        judges = [
            children.start(
                [*argv, f"--listen={target}", f"--case-dir={tmp_path / target}"],
                log=tmp_path / f"{target}.log",
            )
            for target in targets
        ]
        files = [tmp_path / target / "told.json" for target in targets]
        wait_for(lambda: all(file.exists() for file in files), "both to note it", 60)
        wait_for(lambda: api.query(f"sum({MESSAGES.name}) == 1"), "the message to be counted")
        assert len(api.query(SINCE.name)) == 2
        for judge in judges:
            judge.kill()
            judge.wait()
        wait_for(lambda: not api.query(SINCE.name), "both to be gone")
        children.start(
            [*argv, f"--listen={targets[0]}", f"--case-dir={tmp_path / 'new pod'}"],
            log=tmp_path / "new.log",
        )
        new = tmp_path / "new pod" / "told.json"
        wait_for(new.exists, "a new judge to note it", 180)
        assert [mail["Subject"] for _, mail in smtp.taken] == ["Job 540 stands still"]
