"""What every agent and command is made of, and nothing of any subject.

A `Collector` (`collector`) turns a part of the node into `Samples` (`exposition`); the `runner`
calls it on its interval and keeps the text that a scrape is given.  `context` says what agents have
in common, `config` where every option comes from, `access` how a server of others is asked, and
`children` holds what may block.  Open `collector` first.
"""
