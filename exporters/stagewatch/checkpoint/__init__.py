"""Is a checkpoint whole?  By its names, sizes and headers, without loading it.

`inventory` lists its files; `formats` finds the files that must be there, by the checkpoint's own
metadata; `headers` checks whether a file can be read to its end; `pickles` reads pickles without
running them.  `verify` puts these together, `find` chooses the checkpoint in a directory, and
`command` is `stagewatch checkpoint`.  Open `verify` first; standard library only.
"""
