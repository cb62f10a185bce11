"""A short list of the tokens of each row that rank best, long enough for the row's filters to end inside it.

The rows are read in chunks by many programs, three times: for the largest logit; for how many tokens come within some
distances of it and what they weigh; and to list those within the shortest distance that suffices. Where that is too
many tokens the list is empty, and the filters look through the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.tiles import LOG2_E

CHUNK = 8192
BLOCK = 1024
MOST_LISTED = 4096
NUM_DISTANCES = tl.constexpr(16)
NO_KEY = tl.constexpr(-(2**31))


@dataclass(frozen=True, eq=False)
class Candidates:
    """By row: keys and ids of the listed tokens in order of ids, how many (0: not listed), and what all tokens weigh.

    A key orders as the logits do. Weights are relative to the best token, at the row's temperature, over the tokens
    that min_p leaves. The rest is scratch; `num_done` is all zeros between launches.
    """

    keys: torch.Tensor  # [rows, MOST_LISTED] int32
    token_ids: torch.Tensor  # [rows, MOST_LISTED] int32
    counts: torch.Tensor  # [rows] int32
    masses: torch.Tensor  # [rows] float64
    largest: torch.Tensor  # [rows] int32
    lowest: torch.Tensor  # [rows] int32
    chunk_counts: torch.Tensor  # [rows, chunks, NUM_DISTANCES] int32
    chunk_masses: torch.Tensor  # [rows, chunks, NUM_DISTANCES] float64
    num_done: torch.Tensor  # [rows] int32


def candidate_lists(num_rows: int, vocab_size: int, device: torch.device | str) -> Candidates:
    """Room for up to so many rows of a vocabulary."""
    cells = (num_rows, triton.cdiv(vocab_size, CHUNK), NUM_DISTANCES.value)

    def integers(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    def doubles(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=device)

    return Candidates(
        keys=integers(num_rows, MOST_LISTED),
        token_ids=integers(num_rows, MOST_LISTED),
        counts=integers(num_rows),
        masses=doubles(num_rows),
        largest=integers(num_rows),
        lowest=integers(num_rows),
        chunk_counts=integers(*cells),
        chunk_masses=doubles(*cells),
        num_done=integers(num_rows),
    )


def list_candidates(
    lists: Candidates,
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
    log_min_p: torch.Tensor | None = None,
) -> None:
    """For [R, V] logits; rows of temperature 0 get no list. The filters are those of find_borders."""
    num_rows, vocab_size = logits.shape
    num_chunks = triton.cdiv(vocab_size, CHUNK)
    grid = (num_chunks, num_rows)
    sizes = {"CHUNK": CHUNK, "BLOCK": BLOCK, "num_warps": 8}
    chunk_block = triton.next_power_of_2(num_chunks)
    row = (logits, logits.stride(0), vocab_size, temperature)
    _largest[grid](*row, lists.chunk_counts, lists.largest, lists.num_done, CHUNK_BLOCK=chunk_block, **sizes)
    _survey[grid](
        *row,
        top_k,
        top_p,
        log_min_p,
        lists.largest,
        lists.lowest,
        lists.counts,
        lists.masses,
        lists.chunk_counts,
        lists.chunk_masses,
        lists.num_done,
        LOG2_E,
        MOST_LISTED=MOST_LISTED,
        CHUNK_BLOCK=chunk_block,
        **sizes,
    )
    _list[grid](*row, lists.lowest, lists.counts, lists.chunk_counts, lists.keys, lists.token_ids, MOST_LISTED, **sizes)


@triton.jit
def flip(bits):
    """Between the bits of a float32 and an integer that orders as the floats do; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def key_to_float(key):
    return flip(key).to(tl.float32, bitcast=True)


@triton.jit
def load_keys(logits, tokens, end):
    """Integers that order as the logits do; NO_KEY for a token that was ruled out, and from `end` on."""
    values = tl.load(logits + tokens, mask=tokens < end, other=-float("inf")).to(tl.float32)
    keys = flip(tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True))  # one zero, not two
    return tl.where(values > -float("inf"), keys, NO_KEY)


@triton.jit
def min_p_key(largest, temperature, log_min_p):
    """The smallest key whose logit over the temperature reaches that of the largest plus log_min_p, in float64."""
    limit = largest.to(tl.float64) / temperature + log_min_p
    nearest = flip((limit * temperature).to(tl.float32).to(tl.int32, bitcast=True))
    keys = nearest + tl.arange(0, 8) - 4
    reached = key_to_float(keys).to(tl.float64) / temperature >= limit
    return tl.min(tl.where(reached, keys, 2**31 - 1), 0)


@triton.jit
def _is_last(num_done, num_chunks):
    """Whether all other chunks of the row are done; their results may then be read."""
    tl.debug_barrier()
    before = tl.atomic_add(num_done, 1, sem="acq_rel")
    is_last = before == num_chunks - 1
    if is_last:
        tl.store(num_done, 0)
    return is_last


@triton.jit
def _largest(
    all_logits, logits_row, vocab_size, temperatures, chunk_best, largest, num_done,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, CHUNK_BLOCK: tl.constexpr,
):  # fmt: skip
    chunk, row, num_chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    if tl.load(temperatures + row) > 0:
        logits = all_logits + row.to(tl.int64) * logits_row
        end = tl.minimum((chunk + 1) * CHUNK, vocab_size)
        best = tl.full([BLOCK], NO_KEY, tl.int32)
        for start in range(chunk * CHUNK, end, BLOCK):
            best = tl.maximum(best, load_keys(logits, start + tl.arange(0, BLOCK), end))
        cells = chunk_best + row * num_chunks * NUM_DISTANCES
        tl.store(cells + chunk, tl.max(best, 0))
        if _is_last(num_done + row, num_chunks):
            chunks = tl.arange(0, CHUNK_BLOCK)
            keys = tl.load(cells + chunks, mask=chunks < num_chunks, other=NO_KEY, cache_modifier=".cg")
            tl.store(largest + row, tl.max(keys, 0))


@triton.jit
def _survey(
    all_logits, logits_row, vocab_size, temperatures, top_ks, top_ps, log_min_ps, largest_keys, lowest, counts, masses,
    chunk_counts, chunk_masses, num_done, log2_e,
    MOST_LISTED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, CHUNK_BLOCK: tl.constexpr,
):  # fmt: skip
    """Counts and weights of the tokens within each distance of the best; the last distance has no end."""
    chunk, row, num_chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    temperature = tl.load(temperatures + row)
    if temperature > 0:
        logits = all_logits + row.to(tl.int64) * logits_row
        end = tl.minimum((chunk + 1) * CHUNK, vocab_size)
        largest_key = tl.load(largest_keys + row)
        largest = key_to_float(largest_key)
        lowest_key = tl.full([], NO_KEY + 1, tl.int32)
        if log_min_ps is not None:
            log_min_p = tl.load(log_min_ps + row)
            if log_min_p > -float("inf"):
                lowest_key = min_p_key(largest, temperature.to(tl.float64), log_min_p)
        # 1/4, 1/2, 1, 3/2, 2, 5/2 ... of the temperature, and all.
        numbers = tl.arange(0, NUM_DISTANCES)
        distances = tl.where(numbers < 2, (numbers + 1) * 0.25, (numbers - 1).to(tl.float32)) * temperature
        own_lowest = flip((largest - distances).to(tl.float32).to(tl.int32, bitcast=True))
        own_lowest = tl.maximum(own_lowest, lowest_key)
        own_lowest = tl.where(numbers == NUM_DISTANCES - 1, lowest_key, tl.minimum(own_lowest, largest_key))

        found = tl.zeros([NUM_DISTANCES, BLOCK], tl.int32)
        weights = tl.zeros([NUM_DISTANCES, BLOCK], tl.float32)
        scale = log2_e / temperature
        top_k = tl.full([], 0, tl.int32)
        if top_ks is not None:
            top_k = tl.load(top_ks + row)
        is_weighed = (top_k == 0) & (top_ps is not None)  # what top_k leaves is weighed later
        for start in range(chunk * CHUNK, end, BLOCK):
            keys = load_keys(logits, start + tl.arange(0, BLOCK), end)
            is_near = keys[None, :] >= own_lowest[:, None]  # no threshold is as low as NO_KEY
            found += is_near.to(tl.int32)
            if is_weighed:
                own = tl.exp2((key_to_float(keys) - largest) * scale)
                weights += tl.where(is_near, own[None, :], 0.0)
        cells = (row * num_chunks + chunk) * NUM_DISTANCES + numbers
        tl.store(chunk_counts + cells, tl.sum(found, 1))
        tl.store(chunk_masses + cells, tl.sum(weights.to(tl.float64), 1))

        if _is_last(num_done + row, num_chunks):
            chunks = tl.arange(0, CHUNK_BLOCK)
            is_chunk = (chunks < num_chunks)[:, None]
            all_cells = (row * num_chunks + chunks)[:, None] * NUM_DISTANCES + numbers[None, :]
            all_counts = tl.load(chunk_counts + all_cells, mask=is_chunk, other=0, cache_modifier=".cg")
            near = tl.sum(all_counts, 0)
            mass = tl.sum(tl.load(chunk_masses + all_cells, mask=is_chunk, other=0.0, cache_modifier=".cg"), 0)
            whole = tl.max(mass, 0)
            is_enough = near == tl.max(near, 0)
            if top_k > 0:
                is_enough = is_enough | (near > top_k)  # one more shows that there are others
            elif top_ps is not None:
                # A millionth more than wanted, because the weights are rounded.
                is_enough = is_enough | (mass >= tl.load(top_ps + row).to(tl.float64) * whole + 1e-6 * whole)
            chosen = tl.min(tl.where(is_enough, numbers, NUM_DISTANCES - 1), 0)
            is_chosen = numbers == chosen
            count = tl.sum(tl.where(is_chosen, near, 0), 0)
            tl.store(lowest + row, tl.max(tl.where(is_chosen, own_lowest, NO_KEY), 0))
            tl.store(counts + row, tl.where(count > MOST_LISTED, 0, count))
            tl.store(masses + row, whole)
            # From here on the first cell of a chunk says where its tokens begin in the list.
            chosen_counts = tl.sum(tl.where(is_chosen[None, :], all_counts, 0), 1)
            begins = tl.cumsum(chosen_counts, 0) - chosen_counts
            tl.debug_barrier()
            tl.store(chunk_counts + (row * num_chunks + chunks) * NUM_DISTANCES, begins, mask=chunks < num_chunks)


@triton.jit
def _list(
    all_logits, logits_row, vocab_size, temperatures, lowest, counts, chunk_begins, keys_listed, tokens_listed,
    most_listed, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunk, row, num_chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    if (tl.load(temperatures + row) > 0) & (tl.load(counts + row) > 0):
        logits = all_logits + row.to(tl.int64) * logits_row
        end = tl.minimum((chunk + 1) * CHUNK, vocab_size)
        lowest_key = tl.load(lowest + row)
        place = row * most_listed + tl.load(chunk_begins + (row * num_chunks + chunk) * NUM_DISTANCES)
        for start in range(chunk * CHUNK, end, BLOCK):
            tokens = start + tl.arange(0, BLOCK)
            keys = load_keys(logits, tokens, end)
            is_listed = keys >= lowest_key
            num_listed = tl.sum(is_listed.to(tl.int32), 0)
            if num_listed > 0:
                places = place + tl.cumsum(is_listed.to(tl.int32), 0) - 1
                tl.store(keys_listed + places, keys, mask=is_listed)
                tl.store(tokens_listed + places, tokens, mask=is_listed)
                place += num_listed
