"""The picture of who waits for whom: ranks that wait alike are one box, the one at fault is red.

`boxes` folds ranks and waits, `layout` gives each its place, `svg` writes the picture; nothing here
decides anything.  Open `svg` first.
"""
