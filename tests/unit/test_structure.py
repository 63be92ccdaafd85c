"""Names: a public class name has one meaning in the whole program."""

from __future__ import annotations

from benchmarks.structure import modules, public_classes


def test_public_class_names_are_unique() -> None:
    sources = {name: path.read_text("utf-8") for name, path in modules().items()}
    shared = {name: places for name, places in public_classes(sources).items() if len(places) > 1}
    assert shared == {}
