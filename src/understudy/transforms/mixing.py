"""Numbers mixed by arithmetic alone: what a seed means is the same in every runtime, language and graph.

Everything here is additions, products, divisions and remainders of whole numbers below 2⁶³. In an exported
graph those of `shuffled` stay below 2³¹ for matrices of up to 46,340 rows or columns, for some runtimes
have no longer ones: its few cubes are constants.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_PRIME = 2**31 - 1  # products of two remainders fit in 63 bits
_ROUNDS = 4


def keys(seed: int, count: int) -> list[int]:
    """Numbers below 2³¹ − 1 that follow from a seed: SplitMix64."""
    found = []
    state = seed % 2**64
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        found.append((mixed ^ (mixed >> 31)) % _PRIME)
    return found


def _cube(x: Tensor, key: int) -> Tensor:
    """(x + key)³ modulo the prime, for x below it."""
    x = (x + key) % _PRIME
    return x * x % _PRIME * x % _PRIME


def shuffled(size: int, seed: int, device: torch.device | None = None) -> Tensor:
    """A bijection of 0..size − 1, at every number where it goes, int64.

    A number is a row and a column of a table as square as `size` has divisors. In turn each is moved on by a
    cube of the other, which can be undone.
    """
    factor, *rounds = keys(seed, 1 + _ROUNDS)
    height = next(k for k in range(math.isqrt(size), 0, -1) if size % k == 0)
    width = size // height
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    factor = next(b for b in range(factor % width, 3 * width) if math.gcd(b, width) == 1)
    row, column = rows[:, None].expand(height, width), columns.expand(height, width)
    row, column = row.flatten(), column.flatten() * (factor % width) % width
    for place, key in enumerate(rounds):  # cubes of few numbers, looked up for all
        if place % 2 == 0:
            column = (column + _cubes(rows, key, width).index_select(0, row).long()) % width
        else:
            row = (row + _cubes(columns, key, height).index_select(0, column).long()) % height
    return row * width + column


def _cubes(x: Tensor, key: int, below: int) -> Tensor:
    """`_cube` of a range, modulo `below`; in a graph in as few bytes as hold it."""
    if not torch.compiler.is_exporting():
        return _cube(x, key) % below
    numbers = [pow(number + key, 3, _PRIME) % below for number in range(len(x))]
    return torch.tensor(numbers, dtype=torch.int16 if below <= 2**15 else torch.int32, device=x.device)


def scattered(size: int, below: int, seed: int, device: torch.device | None = None) -> Tensor:
    """`size` numbers below `below`, each drawn by itself, int64."""
    x = torch.arange(size, device=device)
    for key in keys(seed, 3):
        x = _cube(x, key)
    return x % below
