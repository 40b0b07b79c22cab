"""The page of the Slurm agent: what is wrong in the cluster, without a Grafana."""

from __future__ import annotations

from tests.web.cluster_scene import JOBS, NODES, RUNNING, cluster
from tests.web.http_helpers import Serve
from tests.web.status_scenes import fails
from tests.web.test_status_page import Page, page_of


def test_the_banner_counts_what_cannot_be_used_and_says_who_waits_longest(settled: Serve) -> None:
    page = page_of(settled, cluster())
    assert page.banners == [
        ("banner bad", f"4 of {NODES} nodes take no jobs; 20 GPUs cannot be used.")
    ]
    text = settled(cluster()).get("/live").text
    assert "The oldest job in the queue has waited for 20 h" in text


def test_every_node_is_in_the_grid_by_its_look(settled: Serve) -> None:
    page = page_of(settled, cluster())
    looks = [
        str(of["class"]) for tag, of in page.elements if tag == "li" and "node-" in str(of["class"])
    ]
    assert len(looks) == NODES
    assert {name: looks.count(name) for name in set(looks)} == {
        "node-down": 2,
        "node-drain": 2,
        "node-idle": NODES // 8 - 1,  # one of them is drained
        "node-full": NODES - NODES // 8 - 3,
    }


def test_gpus_queue_and_jobs(settled: Serve) -> None:
    page = page_of(settled, cluster())
    (gpus,) = page.rows("GPUs by type")
    assert (gpus["Type"], gpus["All"]) == ("h200", str(8 * NODES))
    (queue,) = page.rows("Queue by partition")
    waiting = JOBS - RUNNING
    assert (queue["Running"], queue["Waiting"]) == (str(RUNNING), str(waiting))
    assert queue["GPUs asked for"] == str(8 * waiting)
    assert "Priority" in queue["All that wait"]
    jobs = page.rows("Running jobs with GPUs")
    assert len(jobs) == RUNNING
    assert jobs[0] | {"Runs for": ""} == {
        "Job": "7000",
        "User": "user0",
        "Partition": "train",
        "GPUs": "8",
        "Runs for": "",
        "Nodes": "gpu-0001",
    }


def test_reasons_that_users_wrote_stay_text(settled: Serve) -> None:
    text = settled(cluster()).get("/live").text
    assert "<script" not in text
    assert "\u202e" not in text
    assert Page(text).rows("Out of service")[3]["Reason"].startswith("<script>alert(1)</script>")


def test_without_an_answer_of_the_controller_nothing_is_called_well(settled: Serve) -> None:
    page = page_of(settled, {"slurm_nodes": fails, "slurm_queue": fails})
    assert not any(kind == "banner good" for kind, _ in page.banners)
    assert "Nothing is known of the nodes." in page.said["Out of service"]
