"""A Prometheus, or another server with its API, as stagewatch asks it.

`api` sends queries and reads the answers, `selectors` writes queries in which every name is quoted,
and `failure` says in a few words why there was no answer.  Reports, verdicts over a whole job, and
the demo ask through it.
"""
