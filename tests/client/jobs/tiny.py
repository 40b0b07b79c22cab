"""A tokenizer that needs no download; imports nothing of stagewatch."""

from __future__ import annotations

from typing import Any


def tiny_tokenizer() -> Any:
    """Thirty-two words, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(29))]
    tokenizer = Tokenizer(models.WordLevel(dict(zip(words, range(32), strict=True)), "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
