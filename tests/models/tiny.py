"""Tiny random models of transformers, saved as folders that the engine can open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from pagoda.models import Model, load_model
from pagoda.weights.checkpoint import open_checkpoint

VOCAB_SIZE = 97
SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-3,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def randomize(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Values large enough for every part to matter: norms off 1, biases off 0, scores that prefer some keys."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 2:
                parameter.copy_(noise if "embed_tokens" in name else noise * 1.5 * parameter.shape[1] ** -0.5)
            elif "norm" in name:
                parameter.add_(noise * 0.3)
            else:
                parameter.copy_(noise * 0.5)
    return model.float().eval()


def save_and_load(reference: PreTrainedModel, folder: Path) -> Model:
    reference.save_pretrained(folder)
    return load_model(open_checkpoint(folder))


def random_ids(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, length).tolist()


@torch.no_grad()
def reference_logits(reference: PreTrainedModel, ids: list[int]) -> np.ndarray:
    return reference(torch.tensor([ids]), use_cache=False).logits[0].numpy()
