"""Is a checkpoint whole?  Told from its names, sizes and headers, without loading it.

`inventory` lists its files, `formats` says which of them must be there by what the checkpoint says
of itself, `headers` whether each can be read to its end, `pickles` reads pickles without running
them.  `verify` puts these together, `find` says which checkpoint of a directory is meant, and
`command` is `stagewatch checkpoint`.  Open `verify` first; standard library only.
"""
