"""Logs of ranks: the kinds of lines in them, with first and last times.

`child` runs in the helper process: it looks for the configured files, reads their new lines
(`file`, over rotations and floods) and counts those that `patterns` match.  `collector` turns the
counts into samples; open it first.
"""
