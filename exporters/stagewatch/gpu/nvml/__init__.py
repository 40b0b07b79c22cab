"""The NVIDIA driver through NVML; the only code that touches `pynvml`.

All of it runs in a child process, because a driver call may never return; the agent talks to it
through `stagewatch.gpu.reader`. `driver` is that process with its session (open it first);
`inventory` has its GPUs. It makes the calls in `calls`, `fields` and `gpm`, and `answers` checks
the results.

The child answers with a *frame*, plain JSON, which is also what a recording consists of::

    {"time": 1732458600.0,                  Unix time
     "driver": "570.86.15",
     "tiers": {"fast": {"seconds": 0.004,   how long the driver took for all GPUs
                        "gpus": [{"gpu": "0", "uuid": "GPU-...", "mig": "",
                                  "values": {"gpu_temperature_celsius": 51.0,
                                             "gpu_clock_hertz/sm": 1.755e9}}]}}}

A frame with the fast tier also has `xids`, the errors since the previous frame, with gpu, uuid,
pci_bus_id, xid and time.

`stagewatch.gpu.readings` declares the keys of `values`.  A row of the slow tier also has `info`:
model, minor, pci_bus_id, vbios, serial.  A GPU that the driver has lost has `"lost": true` and no
values.
"""
