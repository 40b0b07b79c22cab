"""Runs a training command under watch: `stagewatch run -- torchrun ... train.py`.

`command` sets the environment and says in the end what happened; `child` passes signals and the
exit status through; `ranks` follows the records of the command's ranks.  Open `command` first.
"""
