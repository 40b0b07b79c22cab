"""What a GPU-hour costs, by model of GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import number
from stagewatch.core.errors import ConfigError

OTHER = "other"
"""In a file of prices: every model that has no line of its own."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU-hour by the short name of the model, as in `slurm_node_gpus`."""

    by_model: Mapping[str, float]
    currency: str

    def of(self, model: str) -> float | None:
        """The price of a GPU-hour; None where the site gave none."""
        return self.by_model.get(model, self.by_model.get(OTHER))


def price(value: object) -> float | None:
    """an amount of money above zero, as 2.50; or empty"""
    return None if value in ("", None) else number(value)


def read_prices(every: float | None, file: Path | None, currency: str) -> Prices:
    """The prices of a site: one for `every` model, or a TOML file with a line for each.

    Raises `ConfigError`.
    """
    if file is None:
        return Prices({} if every is None else {OTHER: every}, currency)
    if every is not None:
        raise ConfigError("--price and --price-file exclude each other")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--price-file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--price-file {file}: not valid TOML: {error}") from error
    for model, amount in content.items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not amount > 0:
            raise ConfigError(
                f"--price-file {file}: {model} = {amount!r}: must be the price of a GPU-hour, "
                "as h100 = 2.50"
            )
    return Prices({model: float(amount) for model, amount in content.items()}, currency)
