"""A bounded test of a node for a prolog, or after a repair: memory, products, all-reduce, storage.

`worker` measures, in processes of its own and perhaps with another Python that has PyTorch;
`measure` starts them and gives up in time; `judge` compares each figure with the device's own past
(`past`) and with the peak of its model (`peaks`); `command` prints the verdict.  Open `judge`
first."""
