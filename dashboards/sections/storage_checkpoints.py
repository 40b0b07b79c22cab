"""Checkpoints: how new, how large, and whether one was cut short."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    GREEN,
    RED,
    Column,
    Query,
    mapping,
    section,
    steps,
    table,
    timeseries,
)

CHECKPOINTS = section(
    "Checkpoints",
    table(
        "Newest checkpoint of each job",
        "A checkpoint much smaller than the one before it was cut short: the error shows "
        "when it is read.",
        {"job_id": "Job", "directory": "Directory"},
        [
            Column("Step", "max by (job_id, directory) (io_checkpoint_step{NODE})", unit="none"),
            Column(
                "Age",
                "min by (job_id, directory)"
                " (time() - io_checkpoint_modified_timestamp_seconds{NODE})",
                unit="s",
            ),
            Column(
                "Size", "max by (job_id, directory) (io_checkpoint_size_bytes{NODE})", unit="bytes"
            ),
            Column(
                "Of the one before",
                "max by (job_id, directory) (io_checkpoint_size_bytes{NODE}"
                " / io_checkpoint_previous_size_bytes{NODE})",
                unit="percentunit",
                thresholds=steps((0.8, GREEN), base=RED),
                decimals=0,
            ),
            Column(
                "Growing",
                "max by (job_id, directory) (io_checkpoint_growing{NODE})",
                unit="none",
                mappings=tuple(mapping({"0": ("no", GREEN), "1": ("yes", AMBER)})),
            ),
            Column(
                "Temporary files",
                "max by (job_id, directory) (io_checkpoint_temporary_files{NODE})",
                thresholds=ANY_IS_AMBER,
            ),
        ],
        sort="Age",
        width=14,
    ),
    timeseries(
        "Size",
        "Of the newest checkpoint.",
        Query(
            "max by (job_id, directory) (io_checkpoint_size_bytes{NODE})",
            "{{job_id}} {{directory}}",
        ),
        unit="bytes",
        width=10,
    ),
)
