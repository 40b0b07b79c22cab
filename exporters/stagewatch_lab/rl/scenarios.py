"""All scenarios of the RL system, by name."""

from __future__ import annotations

from stagewatch_lab.rl.full_storage import FullStorage
from stagewatch_lab.rl.lost_event import LostEvent, UnresolvedName
from stagewatch_lab.rl.masked_oom import MaskedOom
from stagewatch_lab.rl.scenario import Scenario
from stagewatch_lab.rl.slow_upload import SlowUpload
from stagewatch_lab.rl.starved_rollout import StarvedRollout

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
