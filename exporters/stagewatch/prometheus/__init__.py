"""A Prometheus, or another server with its API, as stagewatch asks it.

`api` sends queries and reads the answers; `failure` says in a few words why there was none.
Reports, verdicts over a whole job, and the demo ask through it.
"""
