"""The real projects: which release, and the fix that the scripted model answers with.

The fixes are ours, not those of the projects; `project.py` says how they become a reply.
"""

from __future__ import annotations

from tests.real.project import Change, RealProject

_SPLITTER = "sqlparse/engine/statement_splitter.py"
SQLPARSE = RealProject(
    name="sqlparse",
    version="0.5.0",
    filename="sqlparse-0.5.0.tar.gz",
    sha256="714d0a4932c059d16189f58ef5411ec2287a4360f17cdd0edd2d09d4c5087c93",
    thought="END closes the innermost CASE first; only without one does it close a block.",
    changes=(
        Change(_SPLITTER, r"( +)(self\._is_create = )False", r"\1\2False\n\1self._open_cases = 0"),
        Change(
            _SPLITTER,
            r"^( +if unified == 'END':\n)( +)(.*_begin_depth.*)\n",
            r"\1\2if self._open_cases:\n\2    self._open_cases -= 1\n\2else:\n\2    \3\n",
        ),
        Change(
            _SPLITTER,
            r"^( +)(and self\._is_create and .*_depth > 0\):\n)",
            r"\1\2            self._open_cases += unified == 'CASE'\n",
        ),
    ),
    related_tests=("tests/test_split.py",),
    reproduction_path="tests/test_split_case.py",
)

TOMLKIT = RealProject(
    name="tomlkit",
    version="0.13.2",
    filename="tomlkit-0.13.2.tar.gz",
    sha256="fff5fe59a87295b278abd31bec92c15d9bc4a06885ab12bcea52c71119392e79",
    thought="A part that holds a key twice is noted twice for it; note each part once.",
    changes=(
        Change(
            "tomlkit/container.py",
            r"^( +)(self\._tables_map\.setdefault\(k, \[\]\))\.append\(table_idx\)$",
            r"\1parts = \2\n\1if table_idx not in parts:\n\1    parts.append(table_idx)",
        ),
    ),
    related_tests=("tests/test_toml_document.py",),
    reproduction_path="tests/test_split_tables.py",
)

WTFORMS = RealProject(
    name="wtforms",
    version="3.1.1",
    filename="wtforms-3.1.1.tar.gz",
    sha256="5e51df8af9a60f6beead75efa10975e97768825a82146a65c7cbf5b915990620",
    thought="The data is coerced, the choices are not: coerce them before the comparison.",
    changes=(
        Change(
            "src/wtforms/fields/choices.py",
            r"acceptable = \{c\[0\] for",
            "acceptable = {self.coerce(c[0]) for",
        ),
    ),
    related_tests=("tests/fields/test_selectmultiple.py", "tests/fields/test_select.py"),
    reproduction_path="tests/fields/test_coerced_choices.py",
)

_CORE = "pyparsing/core.py"
PYPARSING = RealProject(
    name="pyparsing",
    version="3.1.0",
    filename="pyparsing-3.1.0.tar.gz",
    sha256="edb662d6fe322d6e990b1594b5feaeadf806803359e3d4d42f11e295e588f0ea",
    thought="Without a maximum the shortcuts + and * hold only where the minimum is one.",
    changes=(
        Change(_CORE, r'if max == 0:(\n +repeat = "\+")', r"if max == 0 and self.minLen == 1:\1"),
        Change(_CORE, r'if max == 0:(\n +repeat = "\*")', r"if max == 0 and self.minLen == 1:\1"),
        Change(_CORE, r",\{max - 1\}\}\}", ",{max - 1 if max > 0 else ''}}}"),
    ),
    related_tests=("tests/test_simple_unit.py",),
    reproduction_path="tests/test_word_minimum.py",
)

_PARSER, _COMPILER = "src/jinja2/parser.py", "src/jinja2/compiler.py"
_TARGET_ITEM = '''\
    def _parse_target_item(self, with_namespace: bool) -> nodes.Expr:
        """One name, literal or, where allowed, namespace attribute."""
        if with_namespace and self.stream.look().type == "dot":
            token = self.stream.expect("name")
            self.stream.expect("dot")
            attribute = self.stream.expect("name")
            return nodes.NSRef(token.value, attribute.value, lineno=token.lineno)
        return self.parse_primary()

'''
_GUARD = '''\
    def _guard_namespaces(self, target: nodes.Node, frame: Frame) -> None:
        """Emit a check for each namespace reference, ahead of the assignment itself."""
        found = [target] if isinstance(target, nodes.NSRef) else target.find_all(nodes.NSRef)
        for name in dict.fromkeys(reference.name for reference in found):
            self.writeline(f"if not isinstance({frame.symbols.ref(name)}, Namespace):")
            self.indent()
            self.writeline(
                "raise TemplateRuntimeError"
                '("cannot assign attribute on non-namespace object")'
            )
            self.outdent()

'''
JINJA2 = RealProject(
    name="jinja2",
    version="3.1.4",
    filename="jinja2-3.1.4.tar.gz",
    sha256="4a3aee7acbbe7303aede8e9648d13b8bf88a429282aa6122a993f0ac800cb369",
    thought="Parse namespace references as items of a tuple, and check them before the assignment.",
    changes=(
        Change(
            _PARSER, r"^ +if with_namespace and(?:.*\n)+? +elif name_only", "        if name_only"
        ),
        Change(
            _PARSER,
            r"^( +)simplified=True, extra_end_rules=extra_end_rules$",
            r"\1simplified=True,\n\1extra_end_rules=extra_end_rules,\n\1with_namespace=with_namespace,",
        ),
        Change(
            _PARSER,
            r"target = self\.parse_primary\(\)",
            "target = self._parse_target_item(with_namespace)",
        ),
        Change(
            _PARSER,
            r"^    def parse_tuple\((?:\n.*,)+?\n( +)explicit_parentheses: bool = False,$",
            _TARGET_ITEM + r"\g<0>\n\1with_namespace: bool = False,",
        ),
        Change(
            _PARSER,
            r"^( +)parse = self\.parse_primary$",
            r"\n\1def parse() -> nodes.Expr:\n"
            r"\1    return self._parse_target_item(with_namespace)\n",
        ),
        Change(
            _COMPILER,
            r'^( +)self\.newline\(node\)\n +self\.visit\(node\.target, frame\)\n.*" = "\)$',
            r"\1self._guard_namespaces(node.target, frame)\n\g<0>",
        ),
        Change(
            _COMPILER,
            r'^( +)self\.newline\(node\)\n +self\.visit\(node\.target, frame\)\n.*" = \(Markup.*$',
            r"\1self._guard_namespaces(node.target, frame)\n\g<0>",
        ),
        Change(
            _COMPILER,
            r"^(    def visit_NSRef\(.*\n)(?:.*\n)+?( +ref = .*\n)(?:.*\n)+?"
            r" +self\.writeline\((f.*\{node\.attr.*)\)$",
            _GUARD + r"\1\2        self.write(\3)",
        ),
    ),
    # A user knows of parsing; that the check is in the way where the code is written, he does not.
    hard_to_find=frozenset(
        {f"{_COMPILER}:CodeGenerator.visit_Assign", f"{_COMPILER}:CodeGenerator.visit_AssignBlock"}
    ),
    related_tests=("tests/test_core_tags.py", "tests/test_lexnparse.py", "tests/test_compile.py"),
    reproduction_path="tests/test_namespace_tuples.py",
)

NUM2WORDS = RealProject(
    name="num2words",
    version="0.5.13",
    filename="num2words-0.5.13.tar.gz",
    sha256="a3064716fbbf90d75c449450cebfbc73a6a13e63b2531d09bdecc3ab1a2209cf",
    thought="A letter is missing in the ordinal of ninety.",
    changes=(
        Change(
            "num2words/lang_PL.py",  # this file has CRLF line ends; the search spans two lines
            r"^( +8: \('osiemdziesiąty'.*\n.*)dzisiąty",
            r"\1dziesiąty",
        ),
    ),
    related_tests=("tests/test_pl.py",),
    reproduction_path="tests/test_pl_nineties.py",
)

PROJECTS = (SQLPARSE, TOMLKIT, WTFORMS, PYPARSING, JINJA2, NUM2WORDS)
