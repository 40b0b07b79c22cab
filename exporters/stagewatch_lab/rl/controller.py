"""The controller: `python -m stagewatch_lab.rl.controller PLAN`.

Drives all workers through rollout, train, weights_update and checkpoint, step after step.  When
one of these fails it asks the scheduler to stop the workers' jobs, then waits to be ended.
"""

from __future__ import annotations

import itertools
import logging
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import stagewatch
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.controller_log import CLEANED_UP, STAGE_STARTS, STEP_DONE
from stagewatch_lab.rl.messages import Content, begin_log, call
from stagewatch_lab.rl.plan import Plan

log = logging.getLogger(__name__)

EVENT_SECONDS = 600
ROLLOUT_SECONDS = 7200
WORK_SECONDS = 3700
"""Workers give up after 3600, and say why; the controller waits for that."""
STOP_SECONDS = 30


class JobStopError(RuntimeError):
    """The scheduler did not stop a job."""


class Controller:
    """The single controller of the job."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._book = AddressBook(plan.directory)
        self._rollouts = [f"rollout-{rank}" for rank in range(plan.rollouts)]
        self._trains = [f"train-{rank}" for rank in range(plan.trains)]
        self._pool = ThreadPoolExecutor(plan.trains + plan.rollouts)

    def run(self) -> None:
        """Train until something fails."""
        with stagewatch.stage("init"):
            for name in (*self._rollouts, *self._trains, "metaserver", "scheduler"):
                self._book.wait(name)
        try:
            for step in itertools.count(1):
                began = time.monotonic()
                self._step(step)
                log.info(STEP_DONE, step, time.monotonic() - began)
        except Exception as error:
            log.error("%s: %s", type(error).__name__, error)
            log.info("An error occurred during training, scheduler begin cleanup resource.")
            self._clean_up()

    def _step(self, step: int) -> None:
        self._notify("rollout_start", step)
        with stagewatch.stage("rollout", step=step):
            log.info(STAGE_STARTS, "rollout", step)
            samples = self._roll_out(step)
        self._notify("rollout_end", step)
        with stagewatch.stage("train", step=step):
            log.info(STAGE_STARTS, "train", step)
            stagewatch.scalar("batch_size", samples)
            self._all(self._trains, "train", {"step": step, "samples": samples})
        with stagewatch.stage("weights_update", step=step):
            log.info(STAGE_STARTS, "update weights", step)
            content = {"step": step}
            uploads = self._begin(self._trains, "upload_weights", content, WORK_SECONDS)
            updates = self._begin(self._rollouts, "update_weights", content, WORK_SECONDS)
            self._finish(uploads + updates)
        with stagewatch.stage("checkpoint", step=step):
            log.info(STAGE_STARTS, "save", step)
            self._all(self._trains[:1], "save", {"step": step})

    def _notify(self, event: str, step: int) -> None:
        """Tell the colocated workers whose turn it is; only warns if one cannot be reached."""
        content = {"name": event, "step": step}
        timeout = self._plan.seconds(EVENT_SECONDS)
        with stagewatch.stage(event, step=step):
            futures = {
                name: self._pool.submit(self._event, name, content, timeout)
                for name in self._rollouts
            }
            for name, future in futures.items():
                try:
                    future.result()
                except OSError as error:
                    log.warning("notify_event timeout: %s to %s: %s", event, name, error)

    def _event(self, name: str, content: Content, timeout: float) -> Content:
        return call(self._book.wait(f"{name}.event", name), "event", content, timeout)

    def _roll_out(self, step: int) -> int:
        """Samples of all workers; the samples of a worker that fails are missing in the batch."""
        futures = self._begin(self._rollouts, "rollout", {"step": step}, ROLLOUT_SECONDS)
        samples = 0
        for name, future in zip(self._rollouts, futures, strict=True):
            try:
                samples += future.result()["samples"]
                stagewatch.heartbeat()
            except ConnectionError as error:
                log.error("rollout_distributed_batch failed: %s: %s", name, error)
        return samples

    def _clean_up(self) -> None:
        for job in ("train_worker_job", "rollout_worker_job", "ref_worker_job"):
            try:
                with stagewatch.stage("cleanup"):
                    log.info("Stopping job with UID: %s", job)
                    self._stop(job)
            except JobStopError as error:
                log.error("%s", error)
        log.info(CLEANED_UP)

    def _stop(self, job: str) -> None:
        address = self._book.wait("scheduler.proxy", "scheduler")
        try:
            call(address, "stop", {"job": job}, self._plan.seconds(STOP_SECONDS))
        except TimeoutError as error:
            raise JobStopError(f"Error stopping job {job}: Request timeout") from error

    def _all(self, names: list[str], route: str, content: Content) -> None:
        self._finish(self._begin(names, route, content, WORK_SECONDS))

    def _begin(
        self, names: list[str], route: str, content: Content, seconds: float
    ) -> list[Future[Content]]:
        timeout = self._plan.seconds(seconds)
        return [
            self._pool.submit(call, self._book.wait(name), route, content, timeout)
            for name in names
        ]

    def _finish(self, futures: list[Future[Content]]) -> None:
        """Wait for all; the first failure fails the stage."""
        for future in as_completed(futures):
            future.result()
            stagewatch.heartbeat()


def main(plan: Plan) -> None:
    """Run, then wait to be ended."""
    stagewatch.init("controller", job_id=plan.job_id, rank=0, world_size=1, framework="demo-rl")
    Controller(plan).run()
    signal.pause()


if __name__ == "__main__":
    begin_log()
    main(Plan.load(Path(sys.argv[1])))
