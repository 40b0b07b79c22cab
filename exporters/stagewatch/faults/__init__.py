"""Faults that are injected on purpose: how they are marked, injected and undone.

A kind (kinds/) turns a request into a plan of steps (plan.py).  An injection (injection.py) writes
the steps to a journal (journal.py), marks the fault (markers.py) and carries the steps out with
system tools (tools.py).  The injector, its watchdog or a later command undoes them (undo.py).
Open plan.py first; command.py has the flags.
"""
