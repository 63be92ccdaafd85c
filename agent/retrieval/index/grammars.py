"""The syntax-tree nodes that define functions and classes in each language.

Node type names are those of the tree-sitter grammars named in `module` (their `node-types.json`).
To add a language, add a row here, its package to `pyproject.toml`, and its file suffix to
`agent.repository.languages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Grammar:
    """The node types that define chunks in one language.

    `functions` and `classes` become chunks; only class bodies are searched for further definitions.
    `containers` are searched and leave no trace; so are `namespaces` (their names do not qualify
    symbols, because definitions outside of the block cannot be told from them). `wrappers` are
    containers whose first line is the first line of the definition in them. `comments` directly
    above a definition belong to it; `attributes` also belong to its signature. `bindings` map a
    node type to its (name field, value field): a function bound to a name there has that name if
    the value is one of `function_values`. `literals` are containers whose definitions must start
    below their first line.
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
)
_TYPESCRIPT = replace(
    _JAVASCRIPT,
    module="tree_sitter_typescript",
    factory="language_typescript",
    classes=_JAVASCRIPT.classes
    | _set("abstract_class_declaration interface_declaration enum_declaration"),
    containers=_JAVASCRIPT.containers | _set("internal_module module ambient_declaration"),
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

_PASCAL = Grammar(
    module="tree_sitter_pascal",
    functions=_set("defProc"),
    classes=_set("declType"),
    containers=_set("root unit program library interface implementation declTypes ERROR"),
)

GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "typescript": _TYPESCRIPT,
        "tsx": _TSX,
        "go": _GO,
        "rust": _RUST,
        "java": _JAVA,
        "c": _C,
        "cpp": _CPP,
        "csharp": _C_SHARP,
        "ruby": _RUBY,
        "php": _PHP,
        "pascal": _PASCAL,
    }
)
"""Grammars by the language names of `agent.repository.languages`."""
