"""Replays captures of other programs: `python -m tests.compatibility DIRECTORY`.

A site whose version we have not run sends a directory of captures, named by the command that
printed them.  Each file goes through the product's own parsers, and what they found is printed
beside a count that a few lines here make of the same bytes by other means.

To add a kind of capture, add one small file to this folder with a tuple `READERS` of `Reader`
(reader.py); slurm.py is the example.
"""
