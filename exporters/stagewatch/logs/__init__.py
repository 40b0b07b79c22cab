"""Logs of ranks: which kinds of lines there are, and when each first and last came.

`child` runs in the helper process: it finds the configured files, reads on in each (`file`, over
rotations and floods) and counts what `patterns` match.  `collector` turns the counts into samples;
open it first.
"""
