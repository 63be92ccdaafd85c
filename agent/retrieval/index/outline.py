"""Converts a syntax tree to definitions, by the node types of each grammar. Rows are 0-based lines.
To add a language, add a `Grammar`, its package in `pyproject.toml`, and its suffix in
`agent.repository.languages`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.types import ChunkKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Grammar:
    """The node types that define chunks in one language. `functions` and `classes` become chunks.
    `containers` are searched and leave no trace. `wrappers` begin the definition in them.
    `comments` above a definition belong to it, `attributes` also to its signature. `bindings`:
    (name, value) fields of a node that names one of `function_values`. Definitions in `literals`
    start below their first line. `namespaces` give a prefix. `inside`: further containers of
    functions inside functions. `blocks`: names of functions that take a title and a function.
    """

    module: str
    functions: frozenset[str]
    classes: frozenset[str]
    containers: frozenset[str]
    factory: str = "language"
    wrappers: frozenset[str] = frozenset()
    comments: frozenset[str] = frozenset({"comment"})
    attributes: frozenset[str] = frozenset()
    bindings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    function_values: frozenset[str] = frozenset()
    literals: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()
    blocks: frozenset[str] = frozenset()
    function_needs_body: bool = True


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PYTHON = Grammar(
    module="tree_sitter_python",
    functions=_set("function_definition"),
    classes=_set("class_definition"),
    containers=_set(
        "module block if_statement elif_clause else_clause try_statement except_clause "
        "except_group_clause finally_clause with_statement for_statement while_statement "
        "match_statement case_clause ERROR"
    ),
    wrappers=_set("decorated_definition"),
)

_JAVASCRIPT = Grammar(
    module="tree_sitter_javascript",
    functions=_set("function_declaration generator_function_declaration method_definition"),
    classes=_set("class_declaration class"),
    containers=_set(
        "program class_body statement_block if_statement else_clause try_statement catch_clause "
        "finally_clause expression_statement parenthesized_expression unary_expression "
        "call_expression lexical_declaration variable_declaration ERROR"
    ),
    wrappers=_set("export_statement"),
    attributes=_set("decorator"),
    bindings=MappingProxyType(
        {
            "variable_declarator": ("name", "value"),
            "assignment_expression": ("left", "right"),
            "field_definition": ("property", "value"),
            "public_field_definition": ("name", "value"),
            "pair": ("key", "value"),
        }
    ),
    function_values=_set("arrow_function function_expression generator_function"),
    # Callbacks are searched, because one often wraps a whole file (UMD, describe, define).
    literals=_set("object arguments arrow_function function_expression"),
    inside=_set(
        "return_statement for_statement for_in_statement while_statement do_statement switch_body "
        "switch_statement switch_case switch_default await_expression member_expression"
    ),
    blocks=_set("describe context suite it test specify"),
)
_TYPESCRIPT = replace(
    _JAVASCRIPT,
    module="tree_sitter_typescript",
    factory="language_typescript",
    classes=_JAVASCRIPT.classes
    | _set("abstract_class_declaration interface_declaration enum_declaration"),
    containers=_JAVASCRIPT.containers | _set("ambient_declaration"),
    namespaces=_set("internal_module module"),
)
_TSX = replace(_TYPESCRIPT, factory="language_tsx")

_GO = Grammar(
    module="tree_sitter_go",
    functions=_set("function_declaration method_declaration"),
    classes=_set("type_spec"),
    containers=_set("source_file type_declaration ERROR"),
)

_RUST = Grammar(
    module="tree_sitter_rust",
    functions=_set("function_item macro_definition"),
    classes=_set("struct_item enum_item union_item trait_item impl_item"),
    containers=_set("source_file mod_item declaration_list foreign_mod_item ERROR"),
    comments=_set("line_comment block_comment"),
    attributes=_set("attribute_item"),
)

_JAVA = Grammar(
    module="tree_sitter_java",
    functions=_set("method_declaration constructor_declaration compact_constructor_declaration"),
    classes=_set(
        "class_declaration interface_declaration enum_declaration record_declaration "
        "annotation_type_declaration"
    ),
    containers=_set(
        "program class_body interface_body enum_body enum_body_declarations "
        "annotation_type_body ERROR"
    ),
    comments=_set("line_comment block_comment"),
)

_C = Grammar(
    module="tree_sitter_c",
    functions=_set("function_definition"),
    classes=_set("struct_specifier union_specifier enum_specifier"),
    containers=_set(
        "translation_unit preproc_if preproc_ifdef preproc_else preproc_elif preproc_elifdef "
        "linkage_specification declaration_list type_definition ERROR"
    ),
)
_CPP = replace(
    _C,
    module="tree_sitter_cpp",
    classes=_C.classes | _set("class_specifier"),
    containers=_C.containers | _set("namespace_definition field_declaration_list"),
    wrappers=_set("template_declaration"),
)

_C_SHARP = Grammar(
    module="tree_sitter_c_sharp",
    functions=_set(
        "method_declaration constructor_declaration destructor_declaration operator_declaration "
        "conversion_operator_declaration local_function_statement"
    ),
    classes=_set(
        "class_declaration interface_declaration struct_declaration record_declaration "
        "enum_declaration"
    ),
    containers=_set(
        "compilation_unit namespace_declaration declaration_list global_statement "
        "preproc_if preproc_else preproc_elif ERROR"
    ),
)

_RUBY = Grammar(
    module="tree_sitter_ruby",
    functions=_set("method singleton_method"),
    classes=_set("class module"),
    containers=_set("program body_statement singleton_class begin if then else ERROR"),
    function_needs_body=False,
)

_PHP = Grammar(
    module="tree_sitter_php",
    factory="language_php",
    functions=_set("function_definition method_declaration"),
    classes=_set("class_declaration interface_declaration trait_declaration enum_declaration"),
    containers=_set(
        "program namespace_definition compound_statement declaration_list "
        "enum_declaration_list if_statement ERROR"
    ),
)

GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "typescript": _TYPESCRIPT,
        "vue": _TYPESCRIPT,
        "svelte": _TYPESCRIPT,
        "tsx": _TSX,
        "go": _GO,
        "rust": _RUST,
        "java": _JAVA,
        "c": _C,
        "cpp": _CPP,
        "csharp": _C_SHARP,
        "ruby": _RUBY,
        "php": _PHP,
    }
)
"""Grammars by the language names of `agent.repository.languages`."""


MAX_DEPTH = 30
"""Most classes inside one another; only a hostile file exceeds it."""

INSIDE = " > "
"""Between the name of a function and that of a function inside it."""

_MAX_SYMBOL = 200  # characters; a longer "name" is an expression
_MAX_SIGNATURE_LINES = 12  # a longer one has a table of parameters or a decorator
_MAX_SIGNATURE = 1_200  # characters


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class. Rows are inclusive; `parent` is an index into the same list or None."""

    start: int
    end: int
    symbol: str
    kind: ChunkKind
    signature: str
    parent: int | None


DEFAULT = "default"
"""The symbol of a default export without a name. A chunk has the name of the file instead."""

_WRAPS = re.compile(r"(?:[A-Z]\w*\.)?[A-Za-z_$][\w$]*")  # of React, Vue and others, not `list.map`
_QUOTES = "'\"`"


@functools.cache
def roles_of(language: str, *, inside: bool) -> Mapping[str, str]:
    """Return roles by node type. A type in several sets has the role that comes first.

    A lead is a comment or attribute, which may belong to the definition below it.
    """
    grammar = GRAMMARS[language]
    names = {
        "function": grammar.functions,
        "class": grammar.classes,
        "wrapper": grammar.wrappers,
        "literal": grammar.literals,
        "binding": grammar.bindings,
        "namespace": grammar.namespaces,
        "container": grammar.containers | (grammar.inside if inside else frozenset()),
        "lead": grammar.comments | grammar.attributes,
    }
    return {name: role for role, types in reversed(names.items()) for name in types}


@dataclass(frozen=True, slots=True)
class _Scope:
    """A node's enclosing class, and the first row that a definition may start on."""

    prefix: str = ""
    parent: int | None = None
    floor: int = 0
    wrapper: Node | None = None


class Outliner:
    """Collects the definitions of one file, outermost first, in order of their position; with
    `inside`, also functions inside functions and the blocks of tests.
    """

    def __init__(self, language: str, lines: Sequence[bytes], *, inside: bool = False) -> None:
        self._grammar = GRAMMARS[language]
        self._roles = roles_of(language, inside=inside)
        self._inside = inside
        self._lines = lines
        self._found: list[Definition] = []
        self._lead: dict[int, tuple[int, bool]] = {}  # last row -> (first row, is attribute)

    def collect(self, root: Node) -> list[Definition]:
        """Walk the tree without recursion, because the input decides the nesting depth."""
        roles = self._roles
        stack: list[tuple[Node, _Scope]] = [(root, _Scope())]
        while stack:
            node, scope = stack.pop()
            inner = self._visit(node, scope)
            if inner is not None:
                # Most nodes have no role. Skipping them here is cheapest.
                children = [child for child in node.named_children if child.type in roles]
                stack.extend((child, inner) for child in reversed(children))
        return self._found

    def _visit(self, node: Node, scope: _Scope) -> _Scope | None:
        """Record the definition of `node`. Return the scope of its children, None to skip them."""
        role = self._roles.get(node.type)
        if role == "lead":
            self._note_lead(node)
        elif role == "container":
            if self._inside and node.type == "call_expression" and (title := self._title(node)):
                return self._add_inside(node, node, qualified(scope.prefix, title), scope)
            # A declaration keeps its wrapper (`export const f = ...`); a block does not.
            is_kept = scope.wrapper is None or not _is_block(node)
            return scope if is_kept else replace(scope, wrapper=None)
        elif role == "namespace":
            name = _text(node.child_by_field_name("name"))
            return replace(
                scope, prefix=qualified(scope.prefix, name if name.isidentifier() else "")
            )
        elif role == "function":
            return self._function(node, node, node.child_by_field_name("name"), scope)
        elif role == "class":
            return self._class(node, scope)
        elif role == "wrapper":
            value = node.child_by_field_name("value")  # `export default ...`
            if value is not None and (function := self._function_in(value)) is not None:
                own = function.child_by_field_name("name")
                return self._function(node, function, own, scope, DEFAULT)
            return _Scope(scope.prefix, scope.parent, scope.floor, scope.wrapper or node)
        elif role == "literal":
            floor = max(scope.floor, node.start_point[0] + 1)
            return _Scope(scope.prefix, scope.parent, floor)
        elif role == "binding":
            return self._binding(node, scope)
        return None

    def _note_lead(self, node: Node) -> None:
        attribute = node.type in self._grammar.attributes
        row, column = node.start_point
        if not self._lines[row][:column].strip():
            self._lead[_last_row(node)] = (row, attribute)

    def _binding(self, node: Node, scope: _Scope) -> _Scope | None:
        name_field, value_field = self._grammar.bindings[node.type]
        value = node.child_by_field_name(value_field)
        if value is None:
            return None
        name = node.child_by_field_name(name_field)
        function = self._function_in(value)
        if function is None:
            return scope
        if _text(name) == "module.exports":
            name = function.child_by_field_name("name")
        return self._function(node, function, name, scope, DEFAULT)

    def _function_in(self, value: Node) -> Node | None:
        """Return the function that is the value, or that a call wraps: `memo(forwardRef(f))`."""
        while value.type == "call_expression":
            callee, given = (value.child_by_field_name(n) for n in ("function", "arguments"))
            if given is None or not given.named_children or not _WRAPS.fullmatch(_text(callee)):
                return None
            value = given.named_children[0]
        return value if value.type in self._grammar.function_values else None

    def _title(self, call: Node) -> str:
        """Return `it works` for `it("works", () => {...})`, else ""."""
        callee, given = (call.child_by_field_name(name) for name in ("function", "arguments"))
        name = _text(callee).partition(".")[0]
        if name not in self._grammar.blocks or given is None or given.named_child_count < 2:
            return ""
        title, *others = given.named_children
        if not any(other.type in self._grammar.function_values for other in others):
            return ""
        return f"{name} {_text(title).strip(_QUOTES)}" if "string" in title.type else ""

    def _function(
        self, node: Node, owner: Node, name: Node | None, scope: _Scope, otherwise: str = ""
    ) -> _Scope | None:
        """Record a function, and return the scope inside it where that is searched. `owner` has
        body and parameters; `node` is the whole definition.
        """
        if self._grammar.function_needs_body and owner.child_by_field_name("body") is None:
            return None
        text = _function_name(node, name) or otherwise
        receiver = _receiver(node)
        symbol = qualified(scope.prefix, receiver, text)
        if INSIDE in symbol:
            return self._add_inside(node, owner, symbol, scope)
        method = scope.parent is not None or "." in symbol
        kind = ChunkKind.METHOD if method else ChunkKind.FUNCTION
        self._add(node, owner, symbol, kind, scope)
        return self._scope_inside(symbol, owner) if self._inside and symbol else None

    def _add_inside(self, node: Node, owner: Node, symbol: str, scope: _Scope) -> _Scope | None:
        if _last_row(node) > node.start_point[0]:
            self._add(node, owner, symbol, ChunkKind.METHOD, scope)
        return self._scope_inside(symbol, owner)

    def _scope_inside(self, symbol: str, owner: Node) -> _Scope | None:
        if symbol.count(INSIDE) >= MAX_DEPTH or len(symbol) == _MAX_SYMBOL:
            return None
        return _Scope(symbol + INSIDE, None, owner.start_point[0] + 1)

    def _class(self, node: Node, scope: _Scope) -> _Scope | None:
        body = _class_body(node)
        if body is None:
            return None
        wrapper = scope.wrapper
        exported = wrapper is not None and wrapper.child_by_field_name("value") == node
        symbol = qualified(scope.prefix, _class_name(node) or (DEFAULT if exported else ""))
        index = self._add(node, node, symbol, ChunkKind.CLASS, scope)
        if symbol.count(".") >= MAX_DEPTH:
            return None
        if index is None:
            return replace(scope, wrapper=None)
        return _Scope(symbol, index, _header_end(node)[0] + 1)

    def _add(
        self, node: Node, owner: Node, symbol: str, kind: ChunkKind, scope: _Scope
    ) -> int | None:
        first = (scope.wrapper or node).start_point[0]
        if not symbol or first < scope.floor:
            return None
        start, head = self._with_lead(first, scope.floor)
        signature = self._signature(head, node.start_point[0], _header_end(owner))
        end = max(_last_row(scope.wrapper or node), _last_row(node))
        self._found.append(Definition(start, end, symbol, kind, signature, scope.parent))
        return len(self._found) - 1

    def _with_lead(self, first: int, floor: int) -> tuple[int, int]:
        start = head = first
        while (lead := self._lead.get(start - 1)) is not None and lead[0] >= floor:
            start = lead[0]
            head = start if lead[1] else head
        return start, head

    def _signature(self, first: int, own: int, end: tuple[int, int]) -> str:
        """Return the last lines of a header, or the first ones from its `own` row on."""
        row, column = end
        lines = [*self._lines[first:row], self._lines[row][:column]]
        start = max(first, min(own, row + 1 - _MAX_SIGNATURE_LINES)) - first
        shown = b"\n".join(lines[start : start + _MAX_SIGNATURE_LINES])
        return shown.decode("utf-8", "replace").rstrip()[:_MAX_SIGNATURE]


def qualified(*parts: str) -> str:
    """Join all parts that are not empty with dots, except after a function."""
    return ".".join(filter(None, parts)).replace(f"{INSIDE}.", INSIDE)[:_MAX_SYMBOL]


def _is_block(node: Node) -> bool:
    return node.type in {"block", "statement_block", "declaration_list", "class_body"}


def _last_row(node: Node) -> int:
    """Return the last row with text: some grammars include the line end in a comment."""
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point[0] else row


def _class_body(node: Node) -> Node | None:
    body = node.child_by_field_name("body")
    return node.child_by_field_name("type") if body is None and node.type == "type_spec" else body


def _header_end(owner: Node) -> tuple[int, int]:
    """Return row and column after the last token before the body (`:`, `)`, `->` type)."""
    body = _class_body(owner)
    last = _last_of_header(owner, body)
    if owner.type == "type_spec" and body is not None and body.child_count:
        last = body.children[0]  # Go: `type S struct`
    if last is None:
        return owner.end_point[0], owner.end_point[1]
    return last.end_point[0], last.end_point[1]


def _last_of_header(owner: Node, body: Node | None) -> Node | None:
    """Return the last child before the body that is not a comment, `end` or `;`."""
    last: Node | None = None
    for child in owner.children:
        kind = child.type  # each access creates a new string
        if kind in {"end", ";"} or child == body:
            break
        if not kind.endswith("comment"):
            last = child
    return last


def _text(node: Node | None) -> str:
    if node is None or node.text is None:
        return ""
    return " ".join(node.text.decode("utf-8", "replace").split())


def _plain(name: str) -> str:
    """Return a name without type arguments, pointers and C++ scope marks."""
    name = name.split("<", 1)[0].split("[", 1)[0] if not name.startswith("operator") else name
    return name.replace("::", ".").strip("*& .'\"")


def _function_name(node: Node, name: Node | None) -> str:
    if name is not None:
        return _bound_name(name)
    declarator = node.child_by_field_name("declarator")
    if declarator is not None:
        return _declared_name(declarator)
    operator = _text(node.child_by_field_name("operator"))
    return operator and f"operator {operator}"


def _bound_name(name: Node) -> str:
    text = _text(name)
    if text.isidentifier():  # nearly all
        return text
    text = _plain(text)
    for noise in ("module.exports.", "exports.", "this.", "self."):
        text = text.removeprefix(noise)
    return text.replace(".prototype.", ".")


def _declared_name(node: Node) -> str:
    """C and C++: return the identifier inside nested declarators, with scopes joined by dots."""
    for _ in range(32):  # `int *(*f(int))(void)` nests, but never this deep
        inner = node.child_by_field_name("declarator") or _only_declarator(node)
        if node.type == "qualified_identifier" or node.type == "operator_cast" or inner is None:
            break
        node = inner
    if node.type == "qualified_identifier":
        return qualified(*_scopes(node))
    if node.type == "operator_cast":
        return f"operator {_text(node.child_by_field_name('type'))}"
    return _plain(_text(node))


def _only_declarator(node: Node) -> Node | None:
    if node.type not in {"reference_declarator", "parenthesized_declarator"}:
        return None
    return node.named_children[0] if node.named_children else None


def _scopes(node: Node) -> Iterator[str]:
    current: Node | None = node
    while current is not None and current.type == "qualified_identifier":
        scope = current.child_by_field_name("scope")
        if scope is not None:
            yield _plain(_text(scope))
        current = current.child_by_field_name("name")
    if current is not None:
        yield _plain(_text(current))


def _receiver(node: Node) -> str:
    """Go: return the type that a method belongs to."""
    receiver = node.child_by_field_name("receiver")
    if receiver is None:
        return ""
    declaration = receiver.named_children[0] if receiver.named_children else None
    return _plain(_text(declaration and declaration.child_by_field_name("type")))


def _class_name(node: Node) -> str:
    name = node.child_by_field_name("name")
    if name is None and node.type == "impl_item":
        name = node.child_by_field_name("type")
    if name is None and node.parent is not None and node.parent.type == "type_definition":
        name = node.parent.child_by_field_name("declarator")
    return _plain(_text(name))
