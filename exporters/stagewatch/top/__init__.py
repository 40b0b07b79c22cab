"""`stagewatch top`: the ranks of this node at this moment.

`node` reads ranks again and again, and judges them as `inspect` does.  `rows` lays them out in
columns that fit the terminal.  `screen` shows them and handles keys, with textual; nothing else
imports that.  Open `rows` first.
"""
