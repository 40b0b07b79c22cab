"""Benchmarks: each module `bench_NAME` has a `main()` that prints figures beside their budgets."""
