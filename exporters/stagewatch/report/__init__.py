"""Reports on experiments and recoveries, out of what a Prometheus has kept."""
