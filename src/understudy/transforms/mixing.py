"""Numbers mixed by arithmetic alone: what a seed means is the same in every runtime, language and graph.

Everything here is additions, products, divisions and remainders of whole numbers below 2⁶³.
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

    A step of a + b·x, then rounds on the quotient and the remainder by a divisor of `size` near its root:
    each in turn is moved on by a cube of the other, and so can be moved back.
    """
    first, second, *rounds = keys(seed, 2 + _ROUNDS)
    factor = next(b for b in range(second % size + size, 2 * size + second % size) if math.gcd(b, size) == 1)
    x = (torch.arange(size, device=device) * (factor % size) + first % size) % size
    width = next(size // k for k in range(math.isqrt(size), 0, -1) if size % k == 0)
    left, right = torch.div(x, width, rounding_mode="floor"), x % width  # below height, below width
    height = size // width
    for place, key in enumerate(rounds):  # cubes of few numbers, looked up for all
        if place % 2 == 0:
            right = (right + _cube(torch.arange(height, device=device), key)[left]) % width
        else:
            left = (left + _cube(torch.arange(width, device=device), key)[right]) % height
    return left * width + right


def scattered(size: int, below: int, seed: int, device: torch.device | None = None) -> Tensor:
    """`size` numbers below `below`, each drawn by itself, int64."""
    x = torch.arange(size, device=device)
    for key in keys(seed, 3):
        x = _cube(x, key)
    return x % below
