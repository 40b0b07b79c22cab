"""A real job that really hangs, watched by the real stack, on one machine."""
