"""Short names of GPU models: `NVIDIA H100 80GB HBM3` and Slurm's `nvidia_h100` are both `h100`.

The installed card (NVML) and the configured card (Slurm's GRES) get the same name, so that they can
be compared.
"""

from __future__ import annotations

import re

_NOISE = re.compile(
    r"nvidia|tesla|quadro|geforce|graphics|device|gpu|generation|laptop|with|max|q|"
    r"sxm\d*|pcie\d*|pci|nvl\d*|oam|mezz|hbm\d*e?|ddr\d*|smc|"
    r"\d+(?:\.\d+)?g[bi]?b?|mig|\d+[cg]|\d+"
)
_MODEL = re.compile(r"[a-z]{1,5}\d+[a-z]*")
_GLUED = re.compile(r"(?<=rtx)(?=a\d|pro)|(?<=pro)(?=\d)|(?<=\d)(?=nvl|sxm|pcie|hbm)")
"""Places where sites omit the driver's spaces: `rtxa6000`, `h100nvl`, `rtxpro6000`."""
_BRAND = re.compile(r"^(?:nvidia|tesla|quadro|geforce)(?=[a-z])")
_SERIES = frozenset({"rtx", "gtx", "titan"})
_SUFFIXES = frozenset({"ada", "blackwell", "ti", "super", "xp", "x", "v", "d"})


def gpu_type(name: str) -> str:
    """The normalised short name (`h200`, `a6000`, `rtx4090`); empty for an empty name.

    A name of unknown form is returned in lower case with underscores.
    """
    tokens = _tokens(name)
    return _model(tokens) or "_".join(tokens)


def gpu_model(name: str) -> str:
    """The short name for a site's own type; empty if it names no model (`big`, `1g.10gb`)."""
    return _model(_tokens(name))


def _tokens(name: str) -> list[str]:
    tokens: list[str] = re.findall(r"[a-z0-9.]+", re.sub(r"mig\b.*", "", name.lower()))
    return [part for token in tokens for part in _GLUED.split(_BRAND.sub("", token)) if part]


def _model(tokens: list[str]) -> str:
    for place, token in enumerate(tokens):
        if _NOISE.fullmatch(token):
            continue
        following = tokens[place + 1 :]
        if token in _SERIES:
            if following and _MODEL.fullmatch(following[0]):
                continue  # "RTX A6000" is the A6000
            number = 2 if following[:1] == ["pro"] else 1
            suffixes = [text for text in following[number:] if text in _SUFFIXES]
            if number == 2 and not suffixes:
                suffixes = ["blackwell"]  # every RTX PRO is one, and sites leave it out
            return "".join([token, *following[:number], *suffixes])
        if _MODEL.fullmatch(token):
            return token
    return ""
