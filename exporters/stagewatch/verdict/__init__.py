"""One look at this node's ranks, with a verdict; needs no agent."""
