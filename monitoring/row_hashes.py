"""How many rows repeat an earlier one, from one pass over rows in bounded memory."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

Hashes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.unsignedinteger]

HASH_CAP = 1 << 18
"""Distinct rows that are remembered; up to as many the share of repeated rows is exact."""

_WORD_BYTES = 8
_SHIFT = np.uint64(32)
_GOLDEN = 0x9E3779B97F4A7C15
_MISSING = np.uint64(0x5851F42D4C957F2D)


class RowHasher:
    """Combines one word per column into one 64-bit hash per row, column by column.

    A multilinear hash over folded words: every column has an odd factor of its own, so that rows which
    differ in one column never collide, and the high half is folded into the low one first, as the low
    bits of round numbers are all zero.
    """

    def __init__(self, rows: int) -> None:
        self.columns = 0
        self.hashes = np.zeros(rows, dtype=np.uint64)
        self.scratch = np.empty(rows, dtype=np.uint64)

    def add(self, words: Words) -> None:
        """Take the words of the next column (rows,)."""
        self.columns += 1
        if words.dtype.itemsize < _WORD_BYTES:
            np.copyto(self.scratch, words)
        else:
            np.right_shift(words, _SHIFT, out=self.scratch)
            np.bitwise_xor(self.scratch, words, out=self.scratch)
        np.multiply(self.scratch, np.uint64(_mixed(self.columns) | 1), out=self.scratch)
        np.add(self.hashes, self.scratch, out=self.hashes)

    def finish(self) -> Hashes:
        """Return the hashes of the rows, evenly spread (rows,)."""
        return (self.hashes ^ self.hashes >> _SHIFT) * np.uint64(_GOLDEN)


def number_words(values: npt.NDArray[np.generic]) -> Words:
    """Return the bits of numbers as unsigned words; equal numbers of one dtype have equal words."""
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


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
        if not self.pending:
            return
        fresh = np.sort(np.concatenate(self.pending))  # far quicker than to sort positions, as `unique` does
        self.pending.clear()
        hashes, counts = _grouped(fresh, np.ones(len(fresh), dtype=np.int64))
        hashes, counts = np.concatenate([self.kept, hashes]), np.concatenate([self.counts, counts])
        order = np.argsort(hashes, kind="stable")  # a merge of two sorted runs
        self.kept, self.counts = _grouped(hashes[order], counts[order])
        while len(self.kept) > self.cap:
            self.level += 1
            sampled = self._sampled(self.kept)
            self.kept, self.counts = self.kept[sampled], self.counts[sampled]

    def _sampled(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        below: npt.NDArray[np.bool_] = hashes >> np.uint64(64 - self.level) == 0
        return below


def _grouped(hashes: Hashes, counts: npt.NDArray[np.int64]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return sorted hashes once each, with the sums of their counts."""
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    return hashes[first], np.add.reduceat(counts, first) if len(first) else counts[:0]


def _mixed(number: int) -> int:
    """Spread a small number over 64 bits (the finaliser of SplitMix64)."""
    word = number * _GOLDEN % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31
