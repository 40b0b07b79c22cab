"""HangBench: plays shapes of jobs with real processes and scores who is named when they hang.

A shape (`shape.py`) is a TOML file whose programme is made of `actions.py`.  `process.py` is one
rank that plays it, over `meeting.py` or `gloo.py`; `player.py` runs many shapes on real agents,
`score.py` and `detectors.py` judge, `results.py` writes the tables.  README.md has the language.
"""
