"""The node's network: RDMA ports, and the names and endpoints that a site wants probed.

`infiniband` reads counters of InfiniBand, RoCE and EFA ports from sysfs.  `probe` looks up names
and connects; resolvers and servers may hang, so `probe_child` does it in the helper process.  The
sockets of ranks belong to the room `ranks`.
"""
