"""Frozen values that the steps pass to each other.

Lines are 1-based and inclusive; paths are POSIX paths relative to the repository root. Expected
failures (`ParseFailure`, `ApplyFailure`) are values too. Exceptions are in `agent.errors`.
"""

from agent.types.chat import Completion as Completion
from agent.types.chat import Message as Message
from agent.types.chat import Prompt as Prompt
from agent.types.chat import Tool as Tool
from agent.types.chat import ToolCall as ToolCall
from agent.types.chat import ToolDialogue as ToolDialogue
from agent.types.chat import ToolTurn as ToolTurn
from agent.types.chat import Usage as Usage
from agent.types.chat import mapped_json as mapped_json
from agent.types.edits import AppliedEdit as AppliedEdit
from agent.types.edits import AppliedPatch as AppliedPatch
from agent.types.edits import ApplyFailure as ApplyFailure
from agent.types.edits import ApplyKind as ApplyKind
from agent.types.edits import Candidate as Candidate
from agent.types.edits import CreateFile as CreateFile
from agent.types.edits import DeleteFile as DeleteFile
from agent.types.edits import Edit as Edit
from agent.types.edits import EditFailure as EditFailure
from agent.types.edits import FileChange as FileChange
from agent.types.edits import MatchTier as MatchTier
from agent.types.edits import OutdatedTest as OutdatedTest
from agent.types.edits import ParseFailure as ParseFailure
from agent.types.edits import ParseKind as ParseKind
from agent.types.edits import PatchProposal as PatchProposal
from agent.types.edits import RenameFile as RenameFile
from agent.types.edits import Repair as Repair
from agent.types.edits import ReplaceLines as ReplaceLines
from agent.types.edits import ReplaceSymbol as ReplaceSymbol
from agent.types.edits import ReproductionTest as ReproductionTest
from agent.types.edits import SearchReplace as SearchReplace
from agent.types.edits import WrongTest as WrongTest
from agent.types.retrieval import DEFINITIONS as DEFINITIONS
from agent.types.retrieval import Chunk as Chunk
from agent.types.retrieval import ChunkKind as ChunkKind
from agent.types.retrieval import ContextBundle as ContextBundle
from agent.types.retrieval import ContextPiece as ContextPiece
from agent.types.retrieval import CutBy as CutBy
from agent.types.retrieval import Dirty as Dirty
from agent.types.retrieval import DroppedChunk as DroppedChunk
from agent.types.retrieval import PieceForm as PieceForm
from agent.types.retrieval import Problem as Problem
from agent.types.retrieval import Ranking as Ranking
from agent.types.retrieval import Reason as Reason
from agent.types.retrieval import ScoredChunk as ScoredChunk
from agent.types.retrieval import ScoredFile as ScoredFile
from agent.types.retrieval import SkippedFile as SkippedFile
from agent.types.retrieval import SkipReason as SkipReason
from agent.types.retrieval import SourceFile as SourceFile
from agent.types.validation import BAD_OUTCOMES as BAD_OUTCOMES
from agent.types.validation import Channels as Channels
from agent.types.validation import CommandRun as CommandRun
from agent.types.validation import KnownTests as KnownTests
from agent.types.validation import Outcome as Outcome
from agent.types.validation import OutdatedFinding as OutdatedFinding
from agent.types.validation import SelectedTest as SelectedTest
from agent.types.validation import SyntaxProblem as SyntaxProblem
from agent.types.validation import TestRun as TestRun
from agent.types.validation import ValidationReport as ValidationReport
from agent.types.validation import Verdict as Verdict
