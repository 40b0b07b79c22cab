"""`stagewatch check`: is this node fit for a job?  For a Slurm prolog or HealthCheckProgram.

`facts` asks this node's agent, and looks at the PCI bus and the mounts; `judge` has the options and
one function for each check, which yields what is wrong; `command` prints the verdict in one line
and exits with its status.  Open `judge` first.
"""
