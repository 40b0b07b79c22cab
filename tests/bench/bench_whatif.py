"""Where the step went: ByteDance's three public traces beside the answers of its authors.

`--traces DIR` takes a clone of https://github.com/ByteDance-Seed/StragglerAnalysis (Apache-2.0);
without it, one is made in a temporary directory.  Nothing of it is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyarrow import parquet

from stagewatch.whatif.losses import account
from stagewatch.whatif.replay import Replay
from tests.bench.pipeline_tables import operations_of

SOURCE = "https://github.com/ByteDance-Seed/StragglerAnalysis"
TRACES = {"AR": "one slow worker", "SE": "sequence lengths", "ST": "pipeline partition"}


def main(arguments: Sequence[str] = ()) -> None:
    """Print each answer beside theirs."""
    parser = argparse.ArgumentParser(prog="bench whatif")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="a clone of the repository")
    given: Path | None = parser.parse_args(arguments).traces
    if given is not None:
        _measure(given)
        return
    with tempfile.TemporaryDirectory() as directory:
        clone = ["git", "clone", "--quiet", "--depth", "1", SOURCE, directory]
        if subprocess.run(clone, check=False).returncode:
            print(f"skipped: {SOURCE} cannot be cloned; --traces DIR names a clone")
            return
        _measure(Path(directory))


def _measure(repository: Path) -> None:
    for name, what in TRACES.items():
        theirs = json.loads((repository / "data" / f"result-{name}.json").read_text())
        began = time.process_time()
        table = parquet.read_table(repository / "data" / f"trace-{name}.parquet")
        made = account(Replay(operations_of(table.to_pylist())))
        took = time.process_time() - began
        expected = theirs["blocking_slowdown"]
        off = made.slowdown / expected - 1
        slow = ", ".join(f"rank {rank} ({times:.2f} x)" for rank, times in made.slow) or "nobody"
        print(
            f"{name} ({what}): {made.slowdown:.3f} x, theirs {expected:.3f} x ({off:+.2%}); "
            f"slow: {slow}; {made.steps} steps, {made.ranks} ranks, {took:.1f} s of CPU"
        )
        for loss in made.losses:
            print(f"    {loss.cause.value:<28} lost {loss.share:6.1%}  worth {loss.worth:6.1%}")
