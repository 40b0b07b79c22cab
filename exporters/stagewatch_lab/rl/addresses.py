"""Where each process listens: one file per name, written by the listener."""

from __future__ import annotations

import time
from pathlib import Path

Address = tuple[str, int]
"""Host name or address, and port."""

PAUSE_SECONDS = 0.05


class AddressBook:
    """The addresses of one job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "addresses"
        self._directory.mkdir(exist_ok=True)

    def publish(self, name: str, address: Address) -> None:
        """Write or replace an entry; readers see the old or the new one."""
        draft = self._directory / f".{name}"
        draft.write_text(f"{address[0]} {address[1]}")
        draft.replace(self._directory / name)

    def remove(self, name: str) -> None:
        """Forget an entry."""
        (self._directory / name).unlink(missing_ok=True)

    def known(self, name: str) -> bool:
        """Whether there is such an entry."""
        return (self._directory / name).exists()

    def wait(self, *names: str) -> Address:
        """The address under the first of these names that is known; waits until one is."""
        while True:
            for name in names:
                if self.known(name):
                    host, port = (self._directory / name).read_text().split()
                    return host, int(port)
            time.sleep(PAUSE_SECONDS)
