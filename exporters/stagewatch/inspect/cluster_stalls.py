"""Asks a Prometheus which jobs of the cluster hang, for the status page of the Slurm agent."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import option
from stagewatch.core.errors import NoData, SourceError, StagewatchError
from stagewatch.core.exposition import Samples
from stagewatch.core.findings import Finding, Findings
from stagewatch.core.words import printable
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.slurm.context import SlurmContext

SHOWN = 10
"""Jobs whose story is asked for."""
MAX_SENTENCE = 400


@dataclass(frozen=True, slots=True)
class StallsOptions(PrometheusOptions):
    """The server, and how it is asked."""

    url: str = option(
        "",
        "Prometheus with the recording rules; with it the status page names the jobs that hang, "
        "their culprits, and the pages of their nodes",
        flag="--prometheus",
    )
    timeout: float = option(5.0, "how long one query may take")


class StallsCollector(Collector):
    """Exports nothing: the rules have it already."""

    def __init__(self, options: StallsOptions, findings: Findings, cluster: str) -> None:
        self._options = options
        self._findings = findings
        self._cluster = cluster

    def collect(self) -> Samples:
        if not self._options.url:
            raise NoData("no --prometheus is given")
        try:
            from stagewatch.inspect.story import tell
            from stagewatch.prometheus.api import PrometheusApi
            from stagewatch.prometheus.selectors import select
        except ImportError as error:
            raise SourceError(f"needs {error.name}: pip install 'stagewatch[report]'") from error
        api = PrometheusApi.of(self._options)
        try:
            of_cluster = {"cluster": self._cluster} if self._cluster else {}
            hanging = api.query(
                f"group by (job_id) ({select('job:rl_stall:active', **of_cluster)})"
            )
            jobs = sorted(one.labels["job_id"] for one in hanging if one.labels.get("job_id"))
            pages = _pages(api.targets()) if jobs else {}
            findings = []
            for job_id in jobs[:SHOWN]:
                culprits = api.query(select("job:rl_stall:culprit", job_id=job_id, **of_cluster))
                nodes = sorted({one.labels.get("node", "") for one in culprits})
                try:
                    first, *rest = tell(api, job_id).sentences
                except StagewatchError:  # its last rank has gone between two questions
                    continue
                findings.append(
                    Finding(
                        job_id,
                        "",
                        printable(f"Job {job_id} hangs. {first}", MAX_SENTENCE),
                        printable(" ".join(rest[:2]), 2 * MAX_SENTENCE),
                        links=tuple((node, pages[node]) for node in nodes if node in pages),
                    )
                )
        finally:
            api.close()
        self._findings.replace(findings)
        return Samples()


def _pages(targets: list[tuple[dict[str, str], str]]) -> dict[str, str]:
    """URL of the status page of each node agent, by node."""
    return {
        labels["node"]: f"{parts.scheme}://{parts.netloc}/"
        for labels, url in targets
        if labels.get("job") == "stagewatch" and labels.get("node")
        if (parts := urlsplit(url)).scheme in ("http", "https")
    }


def _build(options: StallsOptions, context: SlurmContext) -> StallsCollector:
    return StallsCollector(options, context.findings, context.discovery.cluster)


SPEC = CollectorSpec(
    name="slurm_stalls",
    help="which jobs hang, from a Prometheus, for the status page",
    interval=15,
    options=StallsOptions,
    build=_build,
)
