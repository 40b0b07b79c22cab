"""The Slurm cluster: what the controller and accounting say of jobs, nodes and GPUs.

A transport (transport/) asks Slurm, and hands its answers to the readers of model.py, which make
records of them with the words of notation.py.  A cluster (cluster.py) keeps the last answer of each
source, the collectors (collectors/) count them, and events/ turns them into counters that outlive
the agent.  discovery.py lists the nodes for Prometheus.  node_jobs.py is the node agent's: which
jobs a node has.  Open cluster.py first; agent.py has the list of collectors.
"""
