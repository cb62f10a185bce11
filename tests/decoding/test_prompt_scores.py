from __future__ import annotations

import numpy as np
import torch

from pagoda.decoding import prompt_logprobs


def test_each_position_scores_the_token_after_it() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (6, 50)).astype(np.float32)
    next_token_ids = rng.integers(0, 50, 6)
    got = prompt_logprobs(logits, next_token_ids, 4)
    expected = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)
    np.testing.assert_allclose(got.chosen, expected.numpy()[np.arange(6), next_token_ids], rtol=1e-6)
    assert got.rows.tolist() == list(range(6))
    assert got.top_token_ids.tolist() == expected.topk(4).indices.tolist()
