"""The loop of TRL's GRPOTrainer that calls tools, until it would generate anew.

    python -m tests.client.jobs.grpo_tools

A model that calls tools is larger than a test may be: the trainer is one without a model, and what
its model would have said is made up.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import stagewatch


def main() -> None:
    """Call two tools, one of which fails; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("trl")
    from trl import GRPOTrainer

    from tests.client.hooking import record

    stagewatch.init("train")
    directory = Path(os.environ["STAGEWATCH_DIR"])
    seen: list[list[str]] = []

    def note() -> None:
        seen.append(sorted(name for name, one in record(directory).calls.items() if one.open))

    def search(query: str) -> str:
        note()
        return f"found {query}"

    async def sandbox(code: str) -> str:
        note()
        raise TimeoutError(code)

    def asks(name: str, **arguments: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "arguments": arguments}}

    trainer = GRPOTrainer.__new__(GRPOTrainer)
    trainer.max_tool_calling_iterations = 1
    trainer.async_loop = asyncio.new_event_loop()
    threading.Thread(target=trainer.async_loop.run_forever, daemon=True).start()
    trainer._sync_tool_dicts = [{"search": search}]
    trainer._async_tool_dicts = [{"sandbox": sandbox}]
    wanted = [asks("search", query="q"), asks("sandbox", code="1/0"), asks("made up by the model")]
    prompts: list[list[Any]] = [[]]
    completions = [[{"role": "assistant", "tool_calls": wanted}]]
    try:
        trainer._tool_call_loop(prompts, [[1]], [[2]], completions, None, None, {})
    except AttributeError as error:
        after = str(error)
    calls = record(directory).calls.items()
    report = {
        "seen": seen,
        "answers": [message["content"] for message in completions[0][1:]],
        "calls": {name: [sum(one.durations), one.errors] for name, one in calls},
        "after": after,
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
