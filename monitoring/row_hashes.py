"""How many rows repeat an earlier one, from one pass over rows in bounded memory."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

Hashes = npt.NDArray[np.uint64]

HASH_CAP = 1 << 18
"""Distinct rows that are remembered; up to as many the share of repeated rows is exact."""

_SHIFT = np.uint64(32)
_GOLDEN = 0x9E3779B97F4A7C15
_MISSING = np.uint64(0x5851F42D4C957F2D)


def row_hashes(columns: list[Hashes], rows: int) -> Hashes:
    """Combine one 64-bit word per column into one hash per row (rows,).

    A multilinear hash over folded words: every column has an odd factor of its own, so that rows which
    differ in one column never collide, and the high half is folded into the low one first, as the low
    bits of round numbers are all zero.
    """
    hashes = np.zeros(rows, dtype=np.uint64)
    folded = np.empty(rows, dtype=np.uint64)
    for position, words in enumerate(columns):
        factor = np.uint64(_mixed(position + 1) | 1)
        np.right_shift(words, _SHIFT, out=folded)
        np.bitwise_xor(folded, words, out=folded)
        np.multiply(folded, factor, out=folded)
        np.add(hashes, folded, out=hashes)
    hashes ^= hashes >> _SHIFT
    hashes *= np.uint64(_GOLDEN)
    return hashes


def number_words(values: npt.NDArray[np.generic]) -> Hashes:
    """Return the bits of numbers as 64-bit words; equal numbers of one dtype have equal words."""
    if values.dtype.itemsize == 8:  # noqa: PLR2004 - bytes of a word
        return np.ascontiguousarray(values).view(np.uint64)
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def text_words(codes: npt.NDArray[np.int64], texts: npt.NDArray[np.object_]) -> Hashes:
    """Return a word for each row of a factorised column of text; -1 is a missing value.

    Raises:
        UnicodeEncodeError: A text is not UTF-8.
    """
    hashed = pd.util.hash_array(texts, categorize=False) if len(texts) else np.empty(0, dtype=np.uint64)
    return np.append(hashed, _MISSING)[codes]


@dataclass(slots=True)
class RepeatedRows:
    """Estimates the share of repeated rows by distinct sampling.

    Only rows whose hash lies below a limit are remembered, and the limit is halved whenever there are too
    many: equal rows are kept or left together, so the share among them is that of all rows
    (Gibbons, Distinct sampling for highly-accurate answers to distinct values queries, VLDB 2001).
    """

    cap: int = HASH_CAP
    level: int = 0
    kept: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pending: list[Hashes] = field(default_factory=list)

    def add(self, hashes: Hashes) -> None:
        """Take the hashes of more rows (rows,)."""
        self.pending.append(hashes[self._sampled(hashes)] if self.level else hashes)
        if sum(map(len, self.pending)) >= self.cap:
            self._settle()

    @property
    def share(self) -> float:
        """Share of the rows that repeat an earlier one."""
        self._settle()
        rows = int(self.counts.sum())
        return 1 - len(self.kept) / rows if rows else 0.0

    def _settle(self) -> None:
        hashes = np.concatenate([self.kept, *self.pending])
        weights = np.concatenate([self.counts, np.ones(len(hashes) - len(self.kept), dtype=np.int64)])
        self.pending.clear()
        self.kept, inverse = np.unique(hashes, return_inverse=True)
        self.counts = np.bincount(inverse, weights, minlength=len(self.kept)).astype(np.int64)
        while len(self.kept) > self.cap:
            self.level += 1
            sampled = self._sampled(self.kept)
            self.kept, self.counts = self.kept[sampled], self.counts[sampled]

    def _sampled(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        below: npt.NDArray[np.bool_] = hashes >> np.uint64(64 - self.level) == 0
        return below


def _mixed(number: int) -> int:
    """Spread a small number over 64 bits (the finaliser of SplitMix64)."""
    word = number * _GOLDEN % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31
