"""Checkpoints: how new, how large, and whether one was cut short."""

from stagewatch import dashboards as draw

CHECKPOINTS = draw.section(
    "Checkpoints",
    draw.table(
        "Newest checkpoint of each job",
        "A checkpoint much smaller than the one before it was cut short: the error shows "
        "when it is read.",
        [
            draw.Column(
                "Step", "max by (job_id, directory) (io_checkpoint_step{NODE})", unit="none"
            ),
            draw.Column(
                "Age",
                "min by (job_id, directory)"
                " (time() - io_checkpoint_modified_timestamp_seconds{NODE})",
            ),
            draw.Column("Size", "max by (job_id, directory) (io_checkpoint_size_bytes{NODE})"),
            draw.Column(
                "Of the one before",
                "max by (job_id, directory) (io_checkpoint_size_bytes{NODE}"
                " / io_checkpoint_previous_size_bytes{NODE})",
                unit="percentunit",
                thresholds=draw.steps((0.8, draw.GREEN), base=draw.RED),
                decimals=0,
            ),
            draw.Column(
                "Growing",
                "max by (job_id, directory) (io_checkpoint_growing{NODE})",
                unit="none",
                mappings=draw.mapping({"0": ("no", draw.GREEN), "1": ("yes", draw.AMBER)}),
            ),
            draw.Column(
                "Temporary files",
                "max by (job_id, directory) (io_checkpoint_temporary_files{NODE})",
                thresholds=draw.ANY_IS_AMBER,
            ),
        ],
        sort="Age",
        width=14,
    ),
    draw.timeseries(
        "Size",
        "Of the newest checkpoint.",
        draw.worst("max by (job_id, directory) (io_checkpoint_size_bytes{NODE})"),
        width=10,
    ),
)
