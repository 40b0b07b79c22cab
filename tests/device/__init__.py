"""What only a real GPU can show: `python -m tests.device` on a machine with one, and PyTorch.

`__main__` runs the parts and writes what each has seen; `jobs` are jobs of ranks as in `rank`.
"""

VICTIM = 2
NOTHING, NEVER_CALLS, GPU_BUSY = "nothing", "never_calls", "gpu_busy"
"""What happens to it: nothing; it comes to no collective; its GPU is busy before the collective."""
NO_MEMORY, BAD_ADDRESS = "no_memory", "bad_address"
"""It asks for more memory than its GPU has; its GPU writes where nothing is mapped."""
