"""The clock of this node: its offset, its estimated error and whether it is synchronised.

`collector` reads the state that the kernel keeps (adjtimex) and never asks a time server: chrony or
ntpd does that, and this room shows what they achieve.
"""
