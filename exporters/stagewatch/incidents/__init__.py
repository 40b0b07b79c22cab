"""Incidents: what an agent keeps of a job that seems to hang on its node.

`collector` judges the node's ranks all the time and takes their stacks once a job seems to hang;
`files` keeps each incident, and `departures` who has left.  `libraries` asks NCCL's RAS and
PyTorch's flight recorder, which `nccl_ras` and `flight_recorder` read.  Open `collector` first.
"""
