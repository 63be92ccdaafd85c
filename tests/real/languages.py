"""Real projects in other languages: the release with the bug, and the fix that is answered with.

The fixes, issues and reproduction tests are ours. What a release lacks to be tested offline is
added to its repository: `added` says what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.real.project import Change, Project
from tests.real.registries import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageProject(Project):
    """A project in another language.

    `packages` are npm packages as `name@version`. `added` are files that the repository gets.
    """

    runner: str
    release: Release
    packages: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)


FLAT = LanguageProject(
    name="flat",
    runner="mocha",
    release=Release(
        "flat",
        "5.0.0",
        "flat-5.0.0.tgz",
        "a6fe3b6d79b6eb267b89d24a4e2f19851d3220a8447d388bff2bdf434dc10fc5",
    ),
    thought="A part __proto__ of a key leads to the prototype of all objects; leave such keys out.",
    changes=(
        Change(
            "index.js",
            r"^( +)while \(key2 !== undefined\) \{\n",
            r"\g<0>\1  if (key1 === '__proto__') {\n\1    return\n\1  }\n\n",
        ),
    ),
    reproduction_path="test/prototype.js",
    related_tests=("test/test.js",),
    packages=("mocha@6.2.3", "is-buffer@2.0.5"),
    added={".gitignore": "node_modules\n"},
)

_EMPTY = r"\n\1if (!keys.length) {\n\1  return -1;\n\1}\n"
MICRO_MEMOIZE = LanguageProject(
    name="micro-memoize",
    runner="jest",
    release=Release(
        "micro-memoize",
        "4.0.4",
        "micro-memoize-4.0.4.tgz",
        "2857818a90dc271c9a070ba6b17e420f96f0bc73e835c15a00a1a2b8b572a899",
    ),
    thought="Both functions that look at the first key have to ask first whether there is one.",
    changes=(
        Change(
            "src/Cache.ts",
            r"^( +)const \{ keys \} = this;\n(\n +if \(isMatchingKey\(keys\[0\])",
            r"\1const { keys } = this;\n" + _EMPTY + r"\2",
        ),
        Change(
            "src/Cache.ts",
            r"^( +)const existingKey = this\.keys\[0\];\n",
            r"\1const { keys } = this;\n" + _EMPTY + r"\n\1const existingKey = keys[0];\n",
        ),
    ),
    reproduction_path="__tests__/emptyCache.ts",
    related_tests=("__tests__/Cache.ts",),
    packages=(
        "jest@24.9.0",
        "ts-jest@24.3.0",
        "typescript@3.9.10",
        "@types/jest@24.9.1",
        "fast-equals@2.0.0",
        "bluebird@3.7.2",
        "@types/bluebird@3.5.38",
    ),
    added={".gitignore": "node_modules\n"},
)

LANGUAGE_PROJECTS = (FLAT, MICRO_MEMOIZE)
