"""Blocks out of blocks: several in one, some files of one. And how a block points at terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.blocks import KEPT, NAMES, RUNS, Block, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray


def merge(blocks: Sequence[Block]) -> Block:
    """One block of all files, in the order given. All have the same dimension."""
    vocabulary, places = np.unique(
        np.concatenate([block.vocabulary for block in blocks]), return_inverse=True
    )
    sizes = np.concatenate([block.postings for block in blocks])
    firsts = accumulate((block.starts.size for block in blocks), initial=0)
    postings = Postings(
        np.repeat(places, sizes),
        np.concatenate(
            [b.posting_pieces + np.uint32(n) for b, n in zip(blocks, firsts, strict=False)]
        ),
        np.concatenate([block.counts for block in blocks]),
        np.concatenate([block.name_counts for block in blocks]),
    )
    names = (
        np.concatenate([block.names[getattr(block, name)] for block in blocks]) for name in NAMES
    )
    columns = {name: np.concatenate([getattr(b, name) for b in blocks]) for name in KEPT}
    return Block(
        **columns,
        **by_term(vocabulary, postings),
        **by_name(*names),
        dimension=blocks[0].dimension,
    )


def select(block: Block, files: NDArray[np.int64]) -> Block:
    """The block of these of its files (numbers), in this order; a file may come twice."""
    sizes = block.file_sizes.astype(np.int64)
    pieces = spread((np.cumsum(sizes) - sizes)[files], sizes[files])
    of_files = dict.fromkeys(("file_sizes", "import_sizes"), files)
    chosen = {name: of_files.get(name, pieces) for name in KEPT if name != "vectors"}
    for of_run, runs in RUNS[1:]:
        sizes = getattr(block, of_run).astype(np.int64)
        at = chosen.get(of_run, pieces)
        chosen |= dict.fromkeys(runs, spread((np.cumsum(sizes) - sizes)[at], sizes[at]))
    names = (block.names[getattr(block, name)[chosen.pop(name, pieces)]] for name in NAMES)
    hashes = by_name(*names)
    vectors = block.vectors.reshape(block.starts.size, block.dimension)
    return Block(
        **{name: getattr(block, name)[at] for name, at in chosen.items()},
        vectors=vectors[pieces].ravel(),
        **by_term(block.vocabulary, _postings_of(block, pieces)),
        **hashes,
        dimension=block.dimension,
    )


def _postings_of(block: Block, pieces: NDArray[np.int64]) -> Postings:
    """The postings of the pieces, each numbered by its place among them."""
    order = np.argsort(block.posting_pieces, kind="stable")
    sizes = np.bincount(block.posting_pieces, minlength=block.starts.size)
    chosen = order[spread((np.cumsum(sizes) - sizes)[pieces], sizes[pieces])]
    terms = np.repeat(np.arange(block.vocabulary.size), block.postings)
    owners = np.repeat(np.arange(pieces.size), sizes[pieces])
    return Postings(terms[chosen], owners, block.counts[chosen], block.name_counts[chosen])


@dataclass(frozen=True, slots=True)
class Postings:
    """`m` postings: `terms` (m,) index a vocabulary, the others are as in `Block`; ordered by piece
    within each term.
    """

    terms: NDArray[np.int64]
    pieces: NDArray[np.generic]
    counts: NDArray[np.generic]
    name_counts: NDArray[np.generic]


def by_term(vocabulary: NDArray[np.uint64], postings: Postings) -> dict[str, NDArray[Any]]:
    """The columns of the terms that have postings."""
    sizes = np.bincount(postings.terms, minlength=vocabulary.size)
    width = np.uint16 if vocabulary.size <= 1 << 16 else np.uint32  # uint16 sorts by radix
    order = np.argsort(postings.terms.astype(width), kind="stable")
    return {
        "vocabulary": vocabulary[sizes > 0],
        "postings": sizes[sizes > 0].astype(np.uint32),
        "posting_pieces": postings.pieces[order].astype(np.uint32),
        "counts": postings.counts[order].astype(np.uint32),
        "name_counts": postings.name_counts[order].astype(np.uint32),
    }


def by_name(
    leaves: NDArray[np.uint64], uses: NDArray[np.uint64], bases: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """The columns of the identifiers with these hashes."""
    names, places = np.unique(np.concatenate((leaves, uses, bases)), return_inverse=True)
    columns = np.split(places.astype(np.uint32), np.cumsum((leaves.size, uses.size)))
    return {"names": names, **dict(zip(NAMES, columns, strict=True))}
