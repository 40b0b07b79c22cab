"""Events of the cluster as counters: ends of jobs, requeues, nodes that leave service.

A ledger (jobs.py, nodes.py) counts each event once, whether a snapshot of the controller or
accounting tells it first.  state.py keeps both ledgers in a file, so that their counters go on
after a restart of the agent.  Open jobs.py first; collectors/events.py feeds and shows them.
"""
