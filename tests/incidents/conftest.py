"""Programs whose waits the kernel tells, as the tests of waits have them."""

from tests.ranks.conftest import program  # noqa: F401
from tests.ranks.waits.conftest import settled, waits  # noqa: F401
