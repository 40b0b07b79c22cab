"""The helper process: runs jobs that may block, each in a short-lived process of its own.

A call on a dead mount can wait for ever, in a state in which not even SIGKILL helps.  So nothing
that can block runs here: for every run of a job a worker is forked, and this process only watches.
A worker past its deadline is killed, once; a job is not started again while its last worker has not
been reaped, since another would only hang as well.

It forks rather than starts programs because everything is loaded by then: neither Python nor this
package is read again from a file system that may be the dead one.  It has a single thread, which is
what makes forking safe, and it uses the standard library only.

A worker that waits like this may outlive even the helper.  The next helper is told of it, and does
not start that job before it is gone.

It speaks lines of JSON: the first line in is the list of jobs; each later line is the beginning of
a name and is answered with the state of the jobs named so.  When its input ends, so does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

from stagewatch.core.helper_job import Job

SPREAD_SECONDS = 5.0
"""First runs are spread over this time, so that a hundred mounts are not all asked at once."""


def serve(jobs: dict[str, Job]) -> None:
    """Run the jobs and answer questions until the input ends."""
    question = b""
    os.set_blocking(0, False)
    while True:
        now = time.monotonic()
        for job in jobs.values():
            job.check(now)
        poll = select.poll()
        poll.register(0, select.POLLIN)
        readers = {job.pipe: job for job in jobs.values() if job.pid}
        for pipe in readers:
            poll.register(pipe, select.POLLIN)
        wake = min((job.wake(now) for job in jobs.values()), default=now + 60)
        for descriptor, _ in poll.poll(max(0.0, wake - now) * 1000 + 1):
            if descriptor:
                readers[descriptor].read()
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return
            *questions, question = (question + data).split(b"\n")
            now = time.monotonic()
            for line in questions:
                prefix = json.loads(line)
                states = {
                    name: job.state(now) for name, job in jobs.items() if name.startswith(prefix)
                }
                sys.stdout.write(json.dumps(states) + "\n")
                sys.stdout.flush()


def leave(jobs: dict[str, Job]) -> None:
    """Give the workers a moment to clean up, then end them; a hung one is left to the kernel."""
    for job in jobs.values():
        if job.pid:
            os.kill(job.pid, signal.SIGTERM)
    limit = time.monotonic() + 0.5
    while time.monotonic() < limit and any(job.pid for job in jobs.values()):
        for job in jobs.values():
            if job.pid:
                job.read()
        time.sleep(0.01)
    for job in jobs.values():
        if job.pid:
            os.kill(job.pid, signal.SIGKILL)


def main() -> None:
    """Read the jobs, then serve."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # the agent decides on these
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(0, "rb", 0, closefd=False) as lines:  # unbuffered: what follows is not eaten
        specs = json.loads(lines.readline())
    now = time.monotonic()
    step = min(SPREAD_SECONDS / max(1, len(specs)), 0.5)
    jobs = {
        name: Job(spec, now + step * number) for number, (name, spec) in enumerate(specs.items())
    }
    signal.signal(signal.SIGTERM, _leave)
    try:
        with contextlib.suppress(BrokenPipeError):
            serve(jobs)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave(jobs)


def _leave(*_: object) -> None:
    raise SystemExit(0)
