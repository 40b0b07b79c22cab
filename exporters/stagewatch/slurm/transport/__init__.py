"""Asks Slurm through its commands.

text.py runs the commands and reads squeue and scontrol; diagnostics.py reads sdiag, accounting.py
sacct and sacctmgr.  Open text.py first.
"""
