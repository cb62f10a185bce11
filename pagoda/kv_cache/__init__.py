"""Who owns which page: pools, the prefix tree, and the manager that the scheduler talks to."""

from __future__ import annotations

from pagoda.kv_cache.hashing import extend_chain, root_hash
from pagoda.kv_cache.manager import CacheState, KVCacheManager, PageTable, PrefixMatch, TableEdit, live_managers
from pagoda.kv_cache.pool import NO_PAGE

__all__ = [
    "NO_PAGE",
    "CacheState",
    "KVCacheManager",
    "PageTable",
    "PrefixMatch",
    "TableEdit",
    "extend_chain",
    "live_managers",
    "root_hash",
]
