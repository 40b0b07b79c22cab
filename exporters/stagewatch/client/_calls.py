"""Calls of tools, environments and reward functions: how many are in flight, how long they take.

Any thread or task may begin and end a call.  A lock, held for a microsecond, protects the counts of
a name; all stores go into the mapping.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any
from weakref import ref as _weakly

from stagewatch.record import (
    BUCKET_UNIT_NS,
    BUCKETS,
    CALL_NAME_SIZE,
    CALL_SIZE,
    CALLS,
    CALLS_AT,
    K_DURATIONS,
    K_ERRORS,
    K_OLDEST,
    K_OPEN,
    K_SUM,
    OTHER_CALLS,
    WORD,
    pad,
)

MAX_NAMES = 1024
"""Most names whose entry is remembered; names with a counter in them would fill memory."""

_LAST_BUCKET = BUCKETS - 1
_read_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME


class Entry:
    """The record's counts for the calls of one name."""

    __slots__ = ("_lock", "_opened", "_word", "_words")

    def __init__(self, words: memoryview, word: int, lock: Any) -> None:
        self._words = words
        self._word = word
        self._lock = lock
        self._opened: OrderedDict[int, tuple[int, _weakly[object]]] = OrderedDict()
        """By number, when each call in flight began; in this order, so that the oldest is found
        without a search.  A call whose end was not recorded, since a signal handler raised, leaves
        by itself."""

    def begin(self, number: int, call: object) -> None:
        """Count a call as being in flight."""
        with self._lock:
            opened = self._opened
            now = _read_clock(_BOOT)
            opened[number] = now, _weakly(call)
            if len(opened) > 1:
                self._show()
            else:
                self._words[self._word + K_OPEN] = 1
                self._words[self._word + K_OLDEST] = now

    def end(self, number: int, *, failed: bool) -> None:
        """Count its duration, and whether it raised an exception."""
        with self._lock:
            opened = self._opened
            call = opened.pop(number, None)
            if call is None:
                return
            words, word = self._words, self._word
            lasted = _read_clock(_BOOT) - call[0]
            bucket = (lasted // BUCKET_UNIT_NS).bit_length()
            words[word + K_DURATIONS + (bucket if bucket < _LAST_BUCKET else _LAST_BUCKET)] += 1
            words[word + K_SUM] += lasted
            if failed:
                words[word + K_ERRORS] += 1
            if opened:
                self._show()
            else:
                words[word + K_OPEN] = words[word + K_OLDEST] = 0

    def forget(self, number: int) -> None:
        """Drop a call, after an exception in the middle of a change."""
        with self._lock:
            self._opened.pop(number, None)
            self._show()

    def _show(self) -> None:
        opened = self._opened
        oldest = 0
        while opened:
            number = next(iter(opened))
            oldest, call = opened[number]
            if call() is not None:
                break
            del opened[number]
            oldest = 0
        self._words[self._word + K_OPEN] = len(opened)
        self._words[self._word + K_OLDEST] = oldest


class CallTable:
    """The entries of all names; names without room share the last one."""

    def __init__(self, words: memoryview, raw: memoryview, lock: Any) -> None:
        self._words = words
        self._raw = raw
        self._lock = lock
        self._entries: dict[object, Entry] = {}
        """By the name that a caller gave."""
        self._labels: dict[bytes, Entry] = {}
        """By the name as it is stored."""
        self._other = self._add(pad(OTHER_CALLS, CALL_NAME_SIZE), CALLS - 1)

    def of(self, name: object) -> Entry:
        """The entry of a name; any object can be one.  Raises whatever its `str` raises."""
        try:
            return self._entries[name]
        except (KeyError, TypeError):  # a new name, or one that cannot be a key
            pass
        label = pad(str(name), CALL_NAME_SIZE)
        with self._lock:
            entry = self._labels.get(label)
            if entry is None:
                room = label[0] and len(self._labels) < CALLS
                entry = self._add(label, len(self._labels) - 1) if room else self._other
        if type(name) is str and len(self._entries) < MAX_NAMES:
            self._entries[name] = entry
        return entry

    def _add(self, label: bytes, index: int) -> Entry:
        at = CALLS_AT + index * CALL_SIZE
        self._raw[at : at + CALL_NAME_SIZE] = label
        entry = Entry(self._words, (at + CALL_NAME_SIZE) // WORD, self._lock)
        self._labels[label] = entry
        return entry
