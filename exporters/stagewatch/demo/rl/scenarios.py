"""All scenarios of the RL system, by name."""

from __future__ import annotations

from stagewatch.demo.rl.full_storage import FullStorage
from stagewatch.demo.rl.lost_event import LostEvent, UnresolvedName
from stagewatch.demo.rl.masked_oom import MaskedOom
from stagewatch.demo.rl.scenario import Scenario
from stagewatch.demo.rl.slow_upload import SlowUpload
from stagewatch.demo.rl.starved_rollout import StarvedRollout

SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario
    for scenario in (
        SlowUpload,
        StarvedRollout,
        MaskedOom,
        LostEvent,
        UnresolvedName,
        FullStorage,
    )
}
