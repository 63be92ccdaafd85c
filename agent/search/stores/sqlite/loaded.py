"""The vectors that a SQLite store caches in memory, and the choice of exact or approximate
search.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import StoreUnreachable
from agent.search.stores.base import EntryFilter
from agent.search.stores.sqlite import statements as sql
from agent.search.stores.sqlite.ann import AnnIndex
from agent.search.stores.sqlite.inverted import is_installed
from agent.search.stores.sqlite.large import Large, Scale
from agent.search.stores.sqlite.resident import BUDGET, Part, Resident, empty, load
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search.stores.sqlite.inverted import VectorReader
    from agent.types.protocols import Reporter


class Stale(Exception):
    """An index is missing or outdated, and must be built outside of any transaction."""

    def __init__(
        self, state: sql.CollectionState, dimension: int, total: int, *, anew: bool
    ) -> None:
        super().__init__("the index is stale")
        self.state = state
        self.dimension = dimension
        self.total = total
        self.anew = anew


class LoadedVectors:
    """Matrices and indexes of the collections in one file, by the collection's token.

    All methods except `build` run within transactions of `StoreFile`, one at a time.
    """

    def __init__(self, path: Path, reporter: Reporter, scale: Scale) -> None:
        self._folder = path.with_name(f"{path.name}.ann")
        self._report = reporter
        self._scale = scale
        self._residents: OrderedDict[tuple[str, Part], Resident] = OrderedDict()
        self._sizes: dict[str, tuple[sql.CollectionState, Mapping[str, int]]] = {}
        self._large: dict[str, Large] = {}
        self._fit: dict[
            str, tuple[sql.CollectionState, int, int]
        ] = {}  # what an index was found to be up to
        self._given_up: dict[str, int] = {}  # the last row when a build was not possible
        self._said = False

    def clear(self) -> None:
        """Drop everything."""
        self._residents.clear()
        self._sizes.clear()
        self._large.clear()
        self._fit.clear()

    # ------------------------------------------------------------------------------ exact search

    def sizes(
        self, connection: sqlite3.Connection, state: sql.CollectionState
    ) -> Mapping[str, int]:
        """Return the number of entries of each project, counted again after changes."""
        known = self._sizes.get(state.token)
        if known is not None and known[0] == state:
            return known[1]
        if known is None or known[0].epoch != state.epoch:
            sizes = sql.sizes(connection, state.key)
        else:  # nothing was removed, so only new rows need counting
            more = sql.sizes_after(connection, state.key, known[0].last)
            sizes = dict(Counter(known[1]) + Counter(more))
        self._sizes[state.token] = (state, sizes)
        return sizes

    def parts(
        self,
        connection: sqlite3.Connection,
        state: sql.CollectionState,
        selection: EntryFilter,
        large: Large | None,
    ) -> Sequence[Part]:
        """Return the parts to search exactly: the selected projects, or the rows missing in the
        index.
        """
        if large is not None:
            return (Part(state.key, None, large.index.last),)
        sizes = self.sizes(connection, state)
        return [Part(state.key, name) for name in sizes if selection.project in (None, name)]

    def resident(
        self, connection: sqlite3.Connection, state: sql.CollectionState, part: Part, dimension: int
    ) -> Resident:
        """Return the current vectors of a part."""
        key = (state.token, part)
        resident = self._residents.pop(key, None) or empty(dimension, part.after)
        load(connection, resident, part, (state.epoch, state.last))
        self._residents[key] = resident
        self._let_go(state.token, part)
        return resident

    def _let_go(self, token: str, latest: Part) -> None:
        """Drop the oldest vectors over the budget and rows that an index contains, never the
        latest.
        """
        for key in list(self._residents):
            if key[0] == token and latest.project is None is key[1].project and key[1] != latest:
                del self._residents[key]
        while len(self._residents) > 1 and self._size() > BUDGET:
            self._residents.popitem(last=False)

    def _size(self) -> int:
        return sum(resident.matrix.nbytes for resident in self._residents.values())

    # ------------------------------------------------------------------------------ large search

    def large(
        self,
        connection: sqlite3.Connection,
        state: sql.CollectionState,
        selection: EntryFilter,
        dimension: int,
    ) -> Large | None:
        """Return the search by index if many entries are selected; None means exact search.

        Raises Stale if the index must be built first.
        """
        sizes = self.sizes(connection, state)
        wanted = (
            sum(sizes.values()) if selection.project is None else sizes.get(selection.project, 0)
        )
        if wanted <= self._scale.limit or not self._indexes():
            return None
        large = self._of(state, dimension)
        self._require(large, connection, state, self._scale.limit)
        return large if large.index.count else None

    def check(
        self, connection: sqlite3.Connection, state: sql.CollectionState, dimension: int
    ) -> None:
        """Raise Stale if a writer should update the index."""
        if state.last <= self._scale.limit or not is_installed():
            return
        large = self._of(state, dimension)
        behind = state.last - large.index.last >= self._scale.tail
        if behind and sum(self.sizes(connection, state).values()) > self._scale.limit:
            self._require(large, connection, state, self._scale.tail - 1)

    def _of(self, state: sql.CollectionState, dimension: int) -> Large:
        large = self._large.get(state.token)
        if large is None:
            index = AnnIndex(
                self._folder / state.token, dimension, self._report, shard=self._scale.shard
            )
            large = self._large[state.token] = Large(index, dimension, self._scale)
        large.index.refresh()
        return large

    def _require(
        self, large: Large, connection: sqlite3.Connection, state: sql.CollectionState, tail: int
    ) -> None:
        if state.last < self._given_up.get(state.token, -self._scale.tail) + self._scale.tail:
            return  # it would fail again, or another process is still building
        now = (state, large.index.last, tail)
        if self._fit.get(state.token) == now:
            return
        total = sum(self.sizes(connection, state).values())
        later = sum(sql.sizes_after(connection, state.key, large.index.last).values())
        few_left = total - later < (1 - self._scale.dead) * large.index.count
        anew = few_left or total > self._scale.growth * large.index.trained
        if later > tail or anew:
            raise Stale(state, large.dimension, total, anew=anew)
        self._fit[state.token] = now

    def build(self, name: str, stale: Stale, reading: VectorReader) -> None:
        """Build the index and report it.

        If that is not possible, report the reason and continue without.
        """
        large = self._large[stale.state.token]
        index = large.index.twin()
        try:
            if not index.build(reading, anew=stale.anew):
                self._given_up[stale.state.token] = stale.state.last  # another process is building
                return
        except StoreUnreachable as error:
            self._given_up[stale.state.token] = stale.state.last
            self._report(Notice(f"{error}; going on with exact search", "warning"))
            return
        large.index = index
        self._report(
            Notice(f"collection {name}: {stale.total:,} vectors are searched by an index (int8)")
        )

    def sweep(self, tokens: Callable[[], Set[str]]) -> None:
        """Remove indexes of dropped collections. Folders are listed before calling `tokens`."""
        if not self._folder.is_dir():
            return
        folders = list(self._folder.iterdir())
        present = tokens()
        for folder in folders:
            if folder.name not in present:
                shutil.rmtree(folder, ignore_errors=True)

    def _indexes(self) -> bool:
        if not is_installed() and not self._said:
            self._said = True
            self._report(
                Notice(
                    f"more than {self._scale.limit:,} vectors are searched exactly, which is slow:"
                    " pip install 'patchshot[ann]'",
                    "warning",
                )
            )
        return is_installed()
