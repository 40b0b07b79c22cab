"""A model and a tokenizer that need no download; imports nothing of stagewatch."""

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


def tiny_model() -> Any:
    """A random model for these words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **tokens, max_position_embeddings=64))
