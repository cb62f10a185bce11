"""Into which tiles a product of some rows by a weight is cut, so that all multiprocessors have work until the end.

A tile of results is made by one multiprocessor. 64 tiles keep less than half of an H200 at work, and 140 keep it as
long as 264 do. The best tile is mostly the smallest of which all fit into one round; what else counts is reading, which
small tiles do more of, and that every round begins anew. The constants are fitted to the times of some 300 tiles
a product, of Llama 3.1 8B's four matrices in bf16 and in fp8, 32 to 1,000 rows: the rule's tile took 0.8 % longer than
the quickest (docs/design/cuda-kernels.md).
"""

from __future__ import annotations

from typing import NamedTuple

# What reading costs beside multiplying, by results at the tile's edges.
EDGE = 16
# What a round costs beside its products, in bytes of inputs times results.
ROUND = 5_000_000
# Beyond so many results, by the bytes of a number, two groups of warps share a tile; else each has its own, and one
# multiplies while the other writes: so every turn to a further round costs the former a share of it.
MOST_OF_ONE_GROUP = {1: 128 * 136, 2: 128 * 176}
SHARED_TURN = 0.1
# Up to so many rows, by the bytes of a number, the rule is quicker than the library's own choice.
MOST_ROWS = {1: 896, 2: 256}
# The library's own choice in fp8, made for tiles that share what they read.
LIBRARY_TILE = (128, 128)
# Many rows by a wide matrix of sixteen bits, in so many rounds at least: 2 % quicker, all products of a model together.
FEWEST_ROUNDS = 6


class Tile(NamedTuple):
    """So many outputs of so many rows. One of the two sides comes in steps of 8, the other of 64: `fine_rows`.

    `paired`: two multiprocessors take tiles one above the other, and read the weights together.
    """

    outputs: int
    rows: int
    fine_rows: bool = False
    paired: bool = False

    def is_shared(self, number_bytes: int) -> bool:
        return self.outputs * self.rows > MOST_OF_ONE_GROUP[number_bytes]

    def num_tiles(self, num_rows: int, num_out: int) -> int:
        return -(-num_out // self.outputs) * -(-num_rows // self.rows)


TILES = (
    *(Tile(outputs, rows) for outputs in range(64, 225, 8) for rows in (64, 128, 192)),
    *(Tile(outputs, rows, fine_rows=True) for outputs in (64, 128, 256) for rows in (16, 32, 48, 64, 80, 96)),
)
WIDE_TILE = Tile(176, 128, paired=True)


def tiles_to_try(num_rows: int, num_out: int, num_in: int, number_bytes: int, num_processors: int) -> list[Tile]:
    """The best first; none: the library's own choice is as good."""
    if num_rows <= MOST_ROWS[number_bytes]:
        tiles = ranked(num_rows, num_out, num_in, number_bytes, num_processors)
        is_known = number_bytes == 1 and tiles[0][:2] == LIBRARY_TILE
        return [] if is_known else tiles
    is_wide = number_bytes == 2 and num_out > num_in
    is_long = WIDE_TILE.num_tiles(num_rows, num_out) >= FEWEST_ROUNDS * num_processors
    return [WIDE_TILE] if is_wide and is_long else []


def ranked(num_rows: int, num_out: int, num_in: int, number_bytes: int, num_processors: int) -> list[Tile]:
    """All tiles, the best first, for inputs and weights of so many bytes a number."""

    def cost(tile: Tile) -> tuple[float, int, int]:
        num_tiles = tile.num_tiles(num_rows, num_out)
        num_rounds = -(-num_tiles // num_processors)
        area = tile.outputs * tile.rows
        round_cost: float = num_in * number_bytes * (area + EDGE * (tile.outputs + tile.rows)) + ROUND
        lost = SHARED_TURN * (num_rounds - 1) if tile.is_shared(number_bytes) else 0
        return (num_rounds + lost) * round_cost, num_tiles * area, tile.rows

    return sorted(TILES, key=cost)
