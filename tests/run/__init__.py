"""`stagewatch run`."""
