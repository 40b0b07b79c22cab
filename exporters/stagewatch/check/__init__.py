"""`stagewatch check`: is this node fit for a job?  For a Slurm prolog or HealthCheckProgram.

`facts` asks this node's agent, or where none answers the driver, the kernel log and the mounts;
`checks` has the options and one function for each check, which yields what it finds wrong;
`command` prints the verdict in one line and exits with it.  Open `checks` first.
"""
