"""Numbers mixed by arithmetic alone: what a seed means is the same in every runtime, language and graph.

Everything here is additions, products, divisions and remainders of whole numbers below 2⁶³. In an exported
graph those of `shuffled` stay below 2³¹ for matrices of up to 46,340 rows or columns, for some runtimes
have no longer ones: its few cubes are constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def _cube(x: Tensor, key: int | Tensor) -> Tensor:
    """(x + key)³ modulo the prime, for x below it."""
    x = (x + key) % _PRIME
    return x * x % _PRIME * x % _PRIME


def shuffled(size: int, seeds: Sequence[int], device: torch.device | None = None) -> Tensor:
    """For each seed a bijection of 0..size − 1, at every number where it goes: (seeds, size), int64.

    A number is a row and a column of a table as square as `size` has divisors. In turn each is moved on by a
    cube of the other, which can be undone.
    """
    drawn = [keys(seed, 1 + _ROUNDS) for seed in seeds]
    height = next(k for k in range(math.isqrt(size), 0, -1) if size % k == 0)
    width = size // height
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    factors = torch.tensor([_factor(first, width) for first, *_ in drawn], device=device)
    whole = len(drawn), height, width
    row = rows[:, None].expand(whole).flatten()
    column = (columns.expand(whole) * factors[:, None, None]).flatten() % width
    for place in range(_ROUNDS):  # cubes of few numbers, looked up for all
        added = [numbers[1 + place] for numbers in drawn]
        if place % 2 == 0:
            column = (column + _looked_up(_cubes(rows, added, width), row)) % width
        else:
            row = (row + _looked_up(_cubes(columns, added, height), column)) % height
    return (row * width + column).reshape(len(drawn), size)


def _factor(key: int, width: int) -> int:
    """The first number from a key on that has no divisor in common with the width, modulo that."""
    return next(b for b in range(key % width, 3 * width) if math.gcd(b, width) == 1) % width


def _looked_up(tables: Tensor, places: Tensor) -> Tensor:
    """Of each table (n, numbers) what stands at its share of the places, in operations that runtimes fold."""
    count, numbers = tables.shape
    if count > 1:
        before = numbers * torch.arange(count, device=places.device)
        places = places + before[:, None].expand(count, len(places) // count).flatten()
    return tables.flatten().index_select(0, places).long()


def _cubes(x: Tensor, added: Sequence[int], below: int) -> Tensor:
    """`_cube` of a range for each key, modulo `below`; in a graph in as few bytes as hold it."""
    if not torch.compiler.is_exporting():
        return _cube(x, torch.tensor(added, device=x.device)[:, None]) % below
    numbers = [[pow(number + key, 3, _PRIME) % below for number in range(len(x))] for key in added]
    few = torch.uint8 if below <= 2**8 else torch.int16
    return torch.tensor(numbers, dtype=few if below <= 2**15 else torch.int32, device=x.device)


def scattered(size: int, below: int, seed: int, device: torch.device | None = None) -> Tensor:
    """`size` numbers below `below`, each drawn by itself, int64."""
    x = torch.arange(size, device=device)
    for key in keys(seed, 3):
        x = _cube(x, key)
    return x % below
