"""Which GPUs there are, and whose they are."""

from stagewatch import dashboards as draw

WASTED_FIRST = (
    "max by (node, gpu, job_id) (gpu_orphaned_process_seconds{GPU}"
    " or gpu_allocated_idle_seconds{GPU} or 0 * gpu_job_info{GPU})"
)

JOBS = draw.section(
    "Jobs",
    draw.table(
        "GPUs and their jobs",
        "The job of every GPU. Wasted GPUs (idle, or held for too long) come first.",
        [
            draw.Column(
                "Given", "max by (node, gpu, job_id, user) (gpu_job_info{GPU})", unit="none"
            ),
            draw.Column(
                "Idle for",
                "max by (node, gpu, job_id) (gpu_allocated_idle_seconds{GPU})",
                thresholds=draw.steps((3600, draw.AMBER)),
            ),
            draw.Column(
                "Held after the job's end",
                "max by (node, gpu, job_id) (gpu_orphaned_process_seconds{GPU})",
                thresholds=draw.steps((300, draw.RED)),
            ),
        ],
        order=WASTED_FIRST,
        sort="Idle for",
        width=12,
    ),
    draw.timeseries(
        "Processes",
        "Compute processes on each GPU; two on one GPU compete for its memory.",
        draw.worst("max by (node, gpu) (gpu_processes{GPU})"),
        "{{node}} GPU {{gpu}}",
        unit="none",
    ),
)

IDENTITY = draw.section(
    "Identity",
    draw.state_timeline(
        "GPU reached by the driver",
        "Lost is an XID 79 or a driver that no longer answers for the GPU.",
        draw.worst("min by (node, gpu) (gpu_up{GPU})", least=True, most=32),
        "{{node}} GPU {{gpu}}",
        mappings=draw.mapping({"0": ("lost", draw.RED), "1": ("up", draw.GREEN)}),
    ),
    draw.table(
        "Models",
        "The model of every GPU.",
        [
            draw.Column(
                "Present",
                "max by (node, gpu, model, uuid, serial, driver, vbios, pci_bus_id, source)"
                " (gpu_info{GPU})",
            )
        ],
        order="Present",
    ),
    collapsed=True,
)
