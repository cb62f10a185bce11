"""Which weights these are, by a digest that is there at once: a model of many gigabytes is not read for it."""

from __future__ import annotations

import hashlib
import json

from pagoda.weights.checkpoint import Checkpoint

NUM_SAMPLES = 64
SAMPLE_BYTES = 4096


def weights_digest(checkpoint: Checkpoint) -> str:
    """Of the configuration, the headers of the weight files and the beginnings of tensors spread over them.

    The same files give the same digest wherever they lie. Another training of the same shapes differs in its numbers
    almost everywhere, and so in those that are looked at.
    """
    digest = hashlib.sha256(checkpoint.kind.encode())
    if checkpoint.kind == "huggingface":  # a GGUF file has its configuration in its header
        digest.update(json.dumps(dict(checkpoint.config), sort_keys=True).encode())
    for header in checkpoint.headers():
        digest.update(header)
    names = sorted(checkpoint.names)
    for name in names[:: max(1, len(names) // NUM_SAMPLES)]:
        digest.update(checkpoint.raw(name)[:SAMPLE_BYTES].tobytes())
    return digest.hexdigest()
