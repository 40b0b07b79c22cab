"""Events of the cluster as counters: ends of jobs, requeues, nodes that leave service.

A ledger (jobs.py, nodes.py) counts every event once, whether the queue or accounting shows it
first. state.py keeps both ledgers in a file, so that counters continue after a restart of the
agent.  Open jobs.py first; collectors/events.py feeds and shows them.
"""
