"""A real Slurm cluster on one machine, and what can go wrong with it."""
