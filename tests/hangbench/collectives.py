"""A function for each collective, so that a stack says which one a rank waits in, as it does where
they are a library's."""

from __future__ import annotations

from collections.abc import Callable


def all_reduce(meet: Callable[[], None]) -> None:
    """Everybody gets the sum."""
    meet()


def all_gather(meet: Callable[[], None]) -> None:
    """Everybody gets everything."""
    meet()


def all_to_all(meet: Callable[[], None]) -> None:
    """Everybody gets a part of each."""
    meet()


def barrier(meet: Callable[[], None]) -> None:
    """Nobody gets anything."""
    meet()


def broadcast(meet: Callable[[], None]) -> None:
    """Everybody gets what one has."""
    meet()


def reduce_scatter(meet: Callable[[], None]) -> None:
    """Everybody gets a part of the sum."""
    meet()


COLLECTIVES = {
    function.__name__: function
    for function in (all_reduce, all_gather, all_to_all, barrier, broadcast, reduce_scatter)
}
