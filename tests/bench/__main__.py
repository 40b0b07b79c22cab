"""Runs benchmarks: `python -m tests.bench [NAME ...]`, all of them without a name."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import tests.bench


def main(wanted: list[str]) -> int:
    """Run them one after the other, since they would disturb each other."""
    names = [
        module.name.removeprefix("bench_")
        for module in pkgutil.iter_modules(tests.bench.__path__)
        if module.name.startswith("bench_")
    ]
    unknown = set(wanted) - set(names)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        return 2
    for name in wanted or names:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"tests.bench.bench_{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
