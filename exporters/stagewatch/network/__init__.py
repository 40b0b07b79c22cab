"""The node's RDMA ports: `infiniband` reads the counters of InfiniBand, RoCE and EFA from sysfs.

The sockets of ranks belong to the room `ranks`.
"""
