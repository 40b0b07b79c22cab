"""Small real programs with a fault planted, or a pause: what HangBench plays by `--programs`.

A case is a TOML file: a shape without a programme of HangBench's own, which names a script beside
it and its arguments.  The player starts the script once for each rank, as torchrun would, and the
`[[server]]`s of the case beside them.  What a script has to tell the player, it tells by `part.py`.
"""
