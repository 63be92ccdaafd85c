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
    """A project in another language. `programs` are what its tests need on PATH.

    `packages` are npm packages as `name@version`. `added` are files that the repository gets.
    `maven` are folders of Maven's store that the tests need. `hard_to_find`: the issue gives no
    clue to the changed file, so that a prompt may leave it out.
    """

    runner: str
    release: Release
    programs: tuple[str, ...]
    packages: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    maven: tuple[str, ...] = ()
    hard_to_find: bool = False


FLAT = LanguageProject(
    name="flat",
    runner="mocha",
    release=Release(
        "npm",
        "flat",
        "5.0.0",
        "flat-5.0.0.tgz",
        "a6fe3b6d79b6eb267b89d24a4e2f19851d3220a8447d388bff2bdf434dc10fc5",
    ),
    programs=("node", "npm"),
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
        "npm",
        "micro-memoize",
        "4.0.4",
        "micro-memoize-4.0.4.tgz",
        "2857818a90dc271c9a070ba6b17e420f96f0bc73e835c15a00a1a2b8b572a899",
    ),
    programs=("node", "npm"),
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

HUMANIZE = LanguageProject(
    name="go-humanize",
    runner="go",
    release=Release(
        "debian",
        "golang-github-dustin-go-humanize-dev",
        "1.0.0-3",
        "golang-github-dustin-go-humanize-dev_1.0.0-3_all.deb",
        "b4d1a9d00e0c8af421a30e683bf36e14ba99fa621d3f698220f9af0420bd330c",
        "share/gocode/src/github.com/dustin/go-humanize",
    ),
    programs=("go", "apt-get", "dpkg-deb"),
    thought="Without a point every zero belongs to the number; cut zeros only behind a point.",
    changes=(
        Change(
            "ftoa.go",
            r"^func stripTrailingZeros\(s string\) string \{\n",
            r'\g<0>\tif !strings.Contains(s, ".") {\n\t\treturn s\n\t}\n',
        ),
    ),
    reproduction_path="whole_test.go",
    related_tests=("ftoa_test.go",),
    added={"go.mod": "module github.com/dustin/go-humanize\n\ngo 1.16\n"},  # it had none yet
)

_JARO = "src/lib.rs"
_COUNT = """\
    let a_matches = a.into_iter().zip(a_matched).filter(|&(_, matched)| matched);
    let b_matches = b.into_iter().zip(b_consumed).filter(|&(_, matched)| matched);
    let out_of_order = a_matches.zip(b_matches)
        .filter(|&((ref a_elem, _), (ref b_elem, _))| a_elem != b_elem)
        .count();
    let transpositions = (out_of_order / 2) as f64;

"""
STRSIM = LanguageProject(
    name="strsim",
    runner="cargo",
    release=Release(
        "debian",
        "librust-strsim-dev",
        "0.10.0-1",
        "librust-strsim-dev_0.10.0-1_amd64.deb",
        "6b676122f64f7c2d3d130db4e367b4fdaaf7c61b65a024110cbe99814471a3a1",
        "share/cargo/registry/strsim-0.10.0",
    ),
    programs=("cargo", "apt-get", "dpkg-deb"),
    thought="Half of the matches that stand in another order are the transpositions.",
    changes=(
        Change(
            _JARO,
            r"^ +let mut transpositions = 0\.0;\n +let mut b_match_index = 0;\n",
            "    let mut a_matched = vec![false; a_len];\n",
        ),
        Change(
            _JARO,
            r"^( +)matches \+= 1\.0;\n\n.*b_match_index \{\n.*\n.*\n.*b_match_index = j;\n",
            r"\1a_matched[i] = true;\n\1matches += 1.0;\n",
        ),
        Change(_JARO, r"^    if matches == 0\.0 \{\n", _COUNT + r"\g<0>"),
    ),
    reproduction_path="tests/transpositions.rs",
    related_tests=("tests/lib.rs",),
)

# The parent of its own pom.xml is not to be had offline. Left out are benchmarks and what needs h2.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.apache.commons</groupId>
  <artifactId>commons-csv</artifactId>
  <version>1.9.0</version>
  <properties>
    <maven.compiler.source>8</maven.compiler.source>
    <maven.compiler.target>8</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>{dependencies}
  </dependencies>
  <build><plugins>{plugins}
  </plugins></build>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><scope>test</scope>
    </dependency>"""
_PLUGIN = """
    <plugin>
      <groupId>org.apache.maven.plugins</groupId><artifactId>{}</artifactId><version>{}</version>
      <configuration>
        <testExcludes>
          <testExclude>**/CSVBenchmark.java</testExclude>
          <testExclude>**/PerformanceTest.java</testExclude>
          <testExclude>**/CSVPrinterTest.java</testExclude>
          <testExclude>**/perf/**</testExclude>
        </testExcludes>
      </configuration>
    </plugin>"""
_DEPENDENCIES = (
    ("org.junit.jupiter", "junit-jupiter", "5.10.2"),
    ("org.hamcrest", "hamcrest", "2.2"),
    ("commons-io", "commons-io", "2.11.0"),
    ("org.apache.commons", "commons-lang3", "3.12.0"),
)
_PLUGINS = (
    ("maven-resources-plugin", "3.3.1"),
    ("maven-compiler-plugin", "3.13.0"),
    ("maven-surefire-plugin", "3.2.5"),
)
_LEXER = "src/main/java/org/apache/commons/csv/Lexer.java"
COMMONS_CSV = LanguageProject(
    name="commons-csv",
    runner="maven",
    release=Release(
        "debian-source",
        "commons-csv",
        "1.9.0-1",
        "commons-csv_1.9.0.orig.tar.xz",
        "661252998cf2b9aac1aa12fe9e104dc23190761a8971384f83a6c1fc02536867",
    ),
    programs=("mvn", "javac", "apt-get"),
    thought="Asking again for a delimiter reads on; remember whether the last token had one.",
    changes=(
        Change(
            _LEXER,
            r"^( +)boolean isDelimiter\(.*\n( +)(if \(ch != delimiter\[0\]\) \{\n(?:.*\n)+?)"
            r"( +return) true;\n((?:.*\n)+?)( +)return count != END_OF_STREAM;\n( +\}\n)",
            r"\1boolean isDelimiter(final int ch) throws IOException {\n"
            r"\2afterDelimiter = false;\n\2\3          afterDelimiter = true;\n\4 true;\n"
            r"\5\6afterDelimiter = count != END_OF_STREAM;\n\6return afterDelimiter;\n\7"
            r"\n\1/** Whether the last token ended with a delimiter. */\n"
            r"\1private boolean afterDelimiter;\n",
        ),
        Change(
            _LEXER,
            r"isEndOfFile\(lastChar\) \|\| !isDelimiter\(lastChar\) &&",
            "isEndOfFile(lastChar) || !afterDelimiter &&",
        ),
    ),
    reproduction_path="src/test/java/org/apache/commons/csv/DoubleDelimiterTest.java",
    related_tests=("src/test/java/org/apache/commons/csv/LexerTest.java",),
    added={
        "pom.xml": _POM.format(
            dependencies="".join(_DEPENDENCY.format(*each) for each in _DEPENDENCIES),
            plugins="".join(_PLUGIN.format(*each) for each in _PLUGINS),
        )
    },
    hard_to_find=True,
    maven=tuple(f"{g.replace('.', '/')}/{a}/{v}" for g, a, v in _DEPENDENCIES)
    + tuple(f"org/apache/maven/plugins/{name}/{version}" for name, version in _PLUGINS),
)

LANGUAGE_PROJECTS = (FLAT, MICRO_MEMOIZE, HUMANIZE, STRSIM, COMMONS_CSV)
