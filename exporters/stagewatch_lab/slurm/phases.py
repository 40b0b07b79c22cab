"""The phases of a recovery, each from the metric with its time."""

from __future__ import annotations

from stagewatch.prometheus.selectors import select
from stagewatch_lab.slurm.story import Story


def node_out(story: Story, node: str, kind: str) -> None:
    """The node left service, by Slurm's own clock."""
    metric = "slurm_node_unavailable_since_timestamp_seconds"
    story.phase("node_out", select(metric, node=node, kind=kind))


def node_back(story: Story, node: str, kind: str) -> None:
    """The node takes jobs again."""
    story.begins("node_back", select("node:recovery:event", node=node, kind=kind))


def job_resumed(story: Story) -> None:
    """The job's run ended, Slurm started it again, and its ranks go on from the checkpoint."""
    job = story.job
    story.phase("job_end", select("slurm_job_requeue_timestamp_seconds", job_id=job))
    saved = story.lab.checkpoints(job).steps()[-1]
    story.phase("job_start", select("slurm_job_start_timestamp_seconds", job_id=job))
    event = select("job:recovery:event", job_id=job, role="train", kind="requeue")
    story.begins("job_resumed", event)
    said = story.value(
        f"max({story.rank_series('rl_scalar', name='resumed_step')})", "the step it resumed from"
    )
    story.facts |= {"checkpoint_step": saved, "resumed_step": int(said)}
    story.expect(f"job {job} goes on after step {saved}, its last checkpoint", said == saved)
    newest = select("io_checkpoint_step", job_id=job)
    story.wait(f"max({newest}) > {saved}", "the job to save more")
    count = story.value(f"max({select('slurm_job_restarts', job_id=job)})", "restarts")
    story.expect("it is the same job, restarted once", count == 1)


def job_quiet(story: Story) -> None:
    """No alert about the job is left."""
    severity = 'severity=~"critical|warning"'
    story.gone(f'ALERTS{{job_id="{story.job}", {severity}}}', "the job's alerts to end")
    story.say("no alert about the job is left")
