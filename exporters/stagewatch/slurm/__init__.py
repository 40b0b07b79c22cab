"""The Slurm cluster: jobs, nodes and GPUs as the controller and accounting report them.

A transport (transport/) asks Slurm; the readers of model.py turn its answers into records, with the
parsers of notation.py. A cluster (cluster.py) keeps the last answer of every source, the collectors
(collectors/) count them, and events/ keeps counters that outlive the agent. discovery.py lists the
nodes for Prometheus. node_jobs.py belongs to the node agent: it finds the jobs of a node. Open
cluster.py first; agent.py has the list of collectors.
"""
