"""A bounded test of a node for a prolog, or after a repair: memory, products, all-reduce, storage.

`worker` measures, in processes of its own and perhaps with another Python that has PyTorch;
`measure` starts them and gives up in time; `judge` holds each figure against the device's own past
(`past`) and against its model's peak (`peaks`); `command` prints the verdict.  Open `judge` first.
"""
