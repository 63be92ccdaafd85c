"""Classifies paths by name: language, test, generated, vendored. Reads no files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise, takewhile

TEXT = "text"

_FOLDERS_KNOWN = 16_384  # folders whose classification is cached


def _by(table: str, prefix: str = "") -> Mapping[str, str]:
    """Return name -> language for entries `language:name,name`."""
    entries = (entry.split(":") for entry in table.split())
    return {prefix + name: language for language, names in entries for name in names.split(",")}


# A header may be C or C++; the C grammar reads most of both.
_BY_EXTENSION = _by(
    """
    python:py,pyi,pyw javascript:js,jsx,mjs,cjs typescript:ts,mts,cts tsx:tsx go:go rust:rs
    java:java c:c,h cpp:cc,cpp,cxx,c++,hh,hpp,hxx,h++,ipp,inl,tpp csharp:cs,csx
    ruby:rb,rake,gemspec,ru php:php,phtml,php5,php7 pascal:pas,dpr,dpk,lpr cython:pyx,pxd,pxi
    kotlin:kt,kts scala:scala,sbt swift:swift objective-c:m,mm lua:lua perl:pl,pm r:r julia:jl
    haskell:hs elixir:ex,exs erlang:erl,hrl clojure:clj,cljs,cljc dart:dart zig:zig
    fortran:f,f90,f95,for shell:sh,bash,zsh,ksh,fish powershell:ps1,psm1 batch:bat,cmd sql:sql
    protobuf:proto graphql:graphql,gql terraform:tf,tfvars,hcl cmake:cmake make:mk,mak
    starlark:bzl,star vue:vue svelte:svelte css:css,scss,sass,less html:html,htm,xhtml
    template:jinja,jinja2,j2,mako,erb,ejs,hbs markdown:md,markdown,mdx rst:rst,rest
    asciidoc:adoc,asciidoc tex:tex,bib,sty toml:toml yaml:yaml,yml
    json:json,jsonl,json5,jsonc,geojson,webmanifest notebook:ipynb
    xml:xml,xsd,xsl,xslt,svg,plist ini:ini,cfg,conf,properties,editorconfig csv:csv,tsv
    gettext:po,pot diff:diff,patch
    """,
    prefix=".",
)
_BY_NAME = _by(
    """
    python:sconstruct,sconscript,wscript
    ruby:gemfile,rakefile,guardfile,vagrantfile,podfile,brewfile
    make:makefile,gnumakefile,kbuild cmake:cmakelists.txt docker:dockerfile,containerfile
    starlark:build,build.bazel,workspace,workspace.bazel
    shell:.bashrc,.bash_profile,.profile,.zshrc,.envrc
    toml:pipfile,cargo.lock,poetry.lock,uv.lock
    json:.babelrc,.eslintrc,.prettierrc,composer.lock,pipfile.lock
    ini:.gitconfig,.gitmodules,.flake8,.pylintrc,.coveragerc,.npmrc go-mod:go.mod,go.work
    """
)
_BY_INTERPRETER = _by(
    """
    python:python,pypy shell:sh,bash,dash,zsh,ksh javascript:node typescript:deno ruby:ruby
    php:php perl:perl lua:lua
    """
)

_SHEBANG = re.compile(rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?([a-zA-Z]+)")


def language_of(path: str, head: bytes = b"") -> str:
    """Return the language of a file, `"text"` if unknown."""
    name = path.rpartition("/")[2].lower()
    dot = name.rfind(".")
    suffix = name[dot:] if 0 < dot < len(name) - 1 else ""  # as pathlib: `.profile` has none
    language = _BY_NAME.get(name) or _BY_EXTENSION.get(suffix)
    if language is None and name.partition(".")[0] in ("dockerfile", "makefile"):
        language = _BY_NAME[name.partition(".")[0]]  # Dockerfile.dev, Makefile.am
    if language is None and not suffix:
        language = _interpreter(head)
    return language or TEXT


def _interpreter(head: bytes) -> str | None:
    match = _SHEBANG.match(head)
    return _BY_INTERPRETER.get(match.group(1).decode("ascii").lower()) if match else None


# File names that only tests have, whatever their folder.
_TEST_NAME = re.compile(
    r"""
      (?: test_.* | .*_test | tests | conftest ) \.pyi?
    | .*_test\.go
    | .*[._-](?:spec|test|cy|e2e)\.(?:[cm]?[jt]sx?|vue|svelte)
    | .*_(?:spec|test)\.(?:rb|exs|lua|dart|php)
    | test_.*\.(?:rb|c|cc|cpp|cxx|sh|jl|lua|r)
    | .*_(?:test|tests|unittest|unittests)\.(?:c|cc|cpp|cxx|rs|sh|jl)
    """,
    re.VERBOSE,
)
# Camel case: `FooTest.java`, `FooTests.cs`, `TestFoo.java`; not `Latest.java`, not `Contest.cs`.
_TEST_CLASS_FILE = re.compile(
    r"(?:(?:.*[a-z0-9_])?(?:Test|Tests|TestCase|IT|Spec)|Test[A-Z]\w*)\.(?:java|kt|scala|cs|php|swift|groovy)"
)
# A folder of these names holds tests at any depth.
_TEST_FOLDERS = frozenset({"tests", "__tests__", "__mocks__", "__snapshots__", "testdata"})
# These also name library code (`django/test/`, `numpy/testing/`, `org/springframework/test/`). They
# count only at the top of the repository or below `src/` (Maven, Gradle).
_TOP_TEST_FOLDERS = frozenset({"test", "testing", "e2e"})
# These count at any depth in languages with monorepos (`packages/a/test/x.js`), unless a folder
# `lib` above shows that they are shipped.
_PROJECT_TEST_FOLDERS = frozenset({"test", "spec", "specs", "e2e"})
_PROJECT_LANGUAGES = frozenset({"javascript", "typescript", "tsx", "ruby"})


def is_test_path(path: str) -> bool:
    """Whether the file is a test or belongs to tests (`django/test/client.py` does not)."""
    folder, _, name = path.rpartition("/")
    if _TEST_NAME.fullmatch(name.lower()) or _TEST_CLASS_FILE.fullmatch(name):
        return True
    in_tests, in_project_tests = _test_folder(folder)
    return in_tests or (in_project_tests and language_of(path) in _PROJECT_LANGUAGES)


@lru_cache(maxsize=_FOLDERS_KNOWN)
def _test_folder(folder: str) -> tuple[bool, bool]:
    if not folder:
        return False, False
    folders = folder.lower().split("/")
    in_tests = (
        not _TEST_FOLDERS.isdisjoint(folders)
        or folders[0] in _TOP_TEST_FOLDERS
        or ("src", "test") in pairwise(folders)
    )
    before_lib = takewhile(lambda part: part != "lib", folders)
    return in_tests, not _PROJECT_TEST_FOLDERS.isdisjoint(before_lib)


_VENDOR_FOLDERS = frozenset(
    {
        "vendor", "vendored", "_vendor", "third_party", "third-party", "thirdparty", "extern",
        "externals", "node_modules", "bower_components", "site-packages", ".yarn",
    }
)  # fmt: skip
_GENERATED_NAME = re.compile(
    r"""
      .*\.min\.(?:js|css|mjs) | .*\.(?:js|css)\.map
    | .*_pb2(?:_grpc)?\.pyi? | .*\.pb\.(?:go|cc|h) | .*\.pb\.gw\.go
    | .*(?:\.|_)(?:generated|gen)\.[a-z]+ | .*\.g\.(?:cs|dart) | .*\.designer\.cs
    | package-lock\.json | npm-shrinkwrap\.json | yarn\.lock | pnpm-lock\.yaml | composer\.lock
    | poetry\.lock | uv\.lock | pdm\.lock | pipfile\.lock | cargo\.lock | gemfile\.lock | go\.sum
    | parsetab\.py | versioneer\.py | _version\.py
    """,
    re.VERBOSE,
)


def is_vendored_path(path: str) -> bool:
    """Whether the file is the code of another project, by a folder such as `vendor`."""
    return _vendor_folder(path.rpartition("/")[0])


@lru_cache(maxsize=_FOLDERS_KNOWN)
def _vendor_folder(folder: str) -> bool:
    return not _VENDOR_FOLDERS.isdisjoint(folder.lower().split("/"))


def is_generated_path(path: str) -> bool:
    """Whether a tool wrote the file, by its name (minified, protobuf output, lock files)."""
    return _GENERATED_NAME.fullmatch(path.rpartition("/")[2].lower()) is not None
