"""`stagewatch check`: is this node fit for a job?  For a Slurm prolog or HealthCheckProgram."""
