"""An import-linter contract: modules outside a package import it through its `__init__` only."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FaceContract(Contract):  # type: ignore[misc]
    """`faces`: packages whose modules are private. `optional`: modules exempt from the rule.

    The innermost face that holds a module is the one that counts. Modules below a face may import
    each other, and a face inside another one may import the modules of the outer one.
    """

    type_name = "face"

    faces = fields.ListField(subfield=fields.StringField())
    optional = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        faces, optional = list(self.faces), set(self.optional or ())
        reached = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                face = face_of(imported, faces)
                if face in (None, imported) or imported in optional or _below(importer, str(face)):
                    continue
                reached.append(f"{importer} imports {imported}: import it from {face}")
        return ContractCheck(kept=not reached, metadata={"reached": reached})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["reached"]:
            output.print_error(line)
            output.new_line()


def face_of(module: str, faces: list[str]) -> str | None:
    """The innermost face that `module` is or belongs to."""
    return max((face for face in faces if _below(module, face)), key=len, default=None)


def _below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
