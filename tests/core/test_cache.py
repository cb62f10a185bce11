from __future__ import annotations

from pagoda.core.cache import CacheGroup


def test_bytes_of_a_token_are_keys_and_values_of_every_layer() -> None:
    group = CacheGroup("full", layers=(0, 2, 4), num_kv_heads=2, head_dim=8)
    assert group.bytes_per_token("f32") == 2 * 3 * 2 * 8 * 4
    assert group.bytes_per_token("f16") == 2 * 3 * 2 * 8 * 2
    assert group.bytes_per_token("int8") == 2 * 3 * 2 * (8 + 4)
