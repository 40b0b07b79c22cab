"""Which GPUs there are, and whose they are."""

from stagewatch.dashboards import (
    AMBER,
    GREEN,
    RED,
    TO_JOB,
    Column,
    Query,
    mapping,
    section,
    state_timeline,
    steps,
    table,
    timeseries,
)

JOBS = section(
    "Jobs",
    table(
        "GPUs and their jobs",
        "Who has been given which GPU; idle and held too long are wasted GPUs.",
        {"node": "Node", "gpu": "GPU", "job_id": "Job", "user": "User"},
        [
            Column("Given", "max by (node, gpu, job_id, user) (gpu_job_info{GPU})", unit="none"),
            Column(
                "Idle for",
                "max by (node, gpu, job_id) (gpu_allocated_idle_seconds{GPU})",
                unit="s",
                thresholds=steps((3600, AMBER)),
            ),
            Column(
                "Held after the job's end",
                "max by (node, gpu, job_id) (gpu_orphaned_process_seconds{GPU})",
                unit="s",
                thresholds=steps((300, RED)),
            ),
        ],
        links={"job_id": TO_JOB},
        sort="Idle for",
        width=12,
    ),
    timeseries(
        "Processes",
        "Compute processes on each GPU; two on one GPU compete for its memory.",
        Query("max by (node, gpu) (gpu_processes{GPU})", "{{node}} GPU {{gpu}}"),
        unit="none",
    ),
)

IDENTITY = section(
    "Identity",
    state_timeline(
        "GPU reached by the driver",
        "Lost is an XID 79 or a driver that no longer answers for the GPU.",
        Query("min by (node, gpu) (gpu_up{GPU})", "{{node}} GPU {{gpu}}"),
        mappings=mapping({"0": ("lost", RED), "1": ("up", GREEN)}),
    ),
    table(
        "Models",
        "What each GPU is.",
        {
            "node": "Node",
            "gpu": "GPU",
            "model": "Model",
            "uuid": "UUID",
            "serial": "Serial",
            "driver": "Driver",
            "vbios": "VBIOS",
            "pci_bus_id": "Bus",
            "source": "Source",
        },
        [
            Column(
                "Present",
                "max by (node, gpu, model, uuid, serial, driver, vbios, pci_bus_id, source)"
                " (gpu_info{GPU})",
            )
        ],
    ),
    collapsed=True,
)
