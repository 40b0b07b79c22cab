"""The NVIDIA driver through NVML; the only code that touches `pynvml`.

Everything here runs in a child process (`child`), because a call of the driver may never return.
The agent talks to it through `stagewatch.gpu.reader`.

What a child reads is a *frame*, plain JSON, and also what a recording consists of::

    {"time": 1732458600.0,                  Unix time
     "driver": "570.86.15",
     "tiers": {"fast": {"seconds": 0.004,   how long the driver took for all GPUs
                        "gpus": [{"gpu": "0", "uuid": "GPU-...", "mig": "",
                                  "values": {"gpu_temperature_celsius": 51.0,
                                             "gpu_clock_hertz/sm": 1.755e9}}]}}}

A frame with the fast tier also has `xids`, the errors announced since the one before, each with
gpu, uuid, pci_bus_id, xid and time.

`values` is keyed by metric name, with the values of further labels after slashes.  A row of the
slow tier has also `info`: model, minor, pci_bus_id, vbios, serial.  A GPU that the driver has lost
has `"lost": true` and no values.
"""
