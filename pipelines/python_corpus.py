"""The newcomer's own Python installation as a corpus: real text with real duplicates, and nothing to download.

Four sources: the standard library's code, its documentation (help topics and docstrings), the descriptions of
installed packages, and licence texts. Licences repeat in nearly every package, so there is something to deduplicate.
"""

from __future__ import annotations

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from dataeff import Dedup, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.filters import GopherQuality, GopherRepetition, Length
from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar
from dataeff.mixers import Unimax
from dataeff.tokenizers import TrainedBpe

Document = dict[str, str]
"""`id`, `text`, and what it belongs to: `package`, and `kind` (module, topic, function, readme, licence, ...)."""
MAX_BYTES = 24_000_000
"""Most bytes of text a source, so that the whole demo ends within minutes on two cores."""
PROSE = ("docs", "packages")
"""Sources that rules for prose are made for."""
_SHORT_DOCSTRING = 80
"""Letters below which a docstring is no document."""
_READMES = {"README": "readme", "CHANGES": "changes", "CHANGELOG": "changes", "HISTORY": "changes", "NEWS": "changes"}
_LICENCES = dict.fromkeys(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT"), "licence") | {
    "NOTICE": "notice",
    "AUTHORS": "authors",
}
_HOLD_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_DOCUMENTED = {
    ast.Module: "module",
    ast.ClassDef: "class",
    ast.FunctionDef: "function",
    ast.AsyncFunctionDef: "function",
}


def python_corpus(
    gathered: Path = Path("build/python_corpus"),
    max_bytes: int = MAX_BYTES,
    vocab_size: int = 8192,
    max_epochs: float = 4.0,
    sequence_length: int = 1024,
    seed: int = 0,
) -> Pipeline:
    """Gather text from this Python installation, then filter, deduplicate, tokenize, mix and shard it."""
    files = gather(gathered, max_bytes)
    return Pipeline(
        Read(*map(str, files)),
        Filter(Length(min_words=5)),
        Filter(GopherRepetition(), GopherQuality(min_words=20), sources=PROSE),
        Dedup(prefer=("licences",)),
        Tokenize(TrainedBpe(vocab_size=vocab_size)),
        Mix(Unimax(max_epochs=max_epochs), max_epochs=max_epochs),
        Shard(ArrowTokens(sequence_length=sequence_length), WebdatasetTar(), TextParquet()),
        seed=seed,
    )


def gather(into: Path, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Write the installation's text as JSON lines, a file a source, without importing what it reads.

    Files are only rewritten where their content changed, so that a second run finds its input as it was. Text that is
    not UTF-8 and metadata that cannot be read are left out; ids hold no path of the machine.

    Args:
        into: Folder, made if need be.
        max_bytes: Most bytes of text a source, in UTF-8; what comes first by name is taken.

    Returns:
        The files, in order of sources.
    """
    into.mkdir(parents=True, exist_ok=True)
    library = Path(sysconfig.get_path("stdlib"))
    packages = installed(distributions())
    sources = {
        "code": code(library),
        "docs": docs(library),
        "licences": licences(library, packages),
        "packages": descriptions(packages),
    }
    return [_write(into / f"{source}.jsonl", source, documents, max_bytes) for source, documents in sources.items()]


def _write(path: Path, source: str, documents: Iterable[Document], max_bytes: int) -> Path:
    lines = []
    left = max_bytes
    for document in documents:
        try:
            num_bytes = len(document["text"].encode())
        except UnicodeEncodeError:
            continue  # An escape in a docstring made half a character, which no file can hold.
        if num_bytes > left:
            break
        left -= num_bytes
        lines.append(json.dumps({"source": source, **document}, ensure_ascii=False) + "\n")
    content = "".join(lines).encode()
    if not path.is_file() or path.read_bytes() != content:
        path.write_bytes(content)
    return path


def code(library: Path) -> Iterator[Document]:
    """Every module below `library`, its tests included."""
    for name, text in _modules(library):
        yield {"id": f"code/{name}", "text": text, "package": _package(name), "kind": "module"}


def docs(library: Path) -> Iterator[Document]:
    """Help topics, then docstrings that are long enough to say something."""
    for topic, text in _topics():
        yield {"id": f"docs/topic/{topic}", "text": text, "package": "pydoc", "kind": "topic"}
    for name, text in _modules(library):
        for node in _statements(_parsed(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                docstring = ast.get_docstring(node)
                if docstring and len(docstring) >= _SHORT_DOCSTRING:
                    at = f"{getattr(node, 'name', 'module')}:{getattr(node, 'lineno', 0)}"
                    yield {
                        "id": f"docs/{name}/{at}",
                        "text": docstring,
                        "package": _package(name),
                        "kind": _DOCUMENTED[type(node)],
                    }


def licences(library: Path, packages: Mapping[str, Distribution]) -> Iterator[Document]:
    """Licences, notices and lists of authors of Python itself, then of each package."""
    for path in sorted(library.iterdir()):
        kind = _kind(path.name, _LICENCES)
        if kind and path.is_file() and (text := _text(path)):
            yield {"id": f"licences/python/{path.name}", "text": text, "package": "python", "kind": kind}
    for name, entry in packages.items():
        for file, kind, text in _texts(entry, _LICENCES):
            yield {"id": f"licences/{name}/{file}", "text": text, "package": name, "kind": kind}


def descriptions(packages: Mapping[str, Distribution]) -> Iterator[Document]:
    """What packages say of themselves: the description in their metadata, then readmes and lists of changes."""
    for name, entry in packages.items():
        description = entry.metadata.json.get("description", "")
        if isinstance(description, str) and description.strip() not in ("", "UNKNOWN"):
            yield {
                "id": f"packages/{name}/description",
                "text": description,
                "package": name,
                "kind": "description",
            }
        for file, kind, text in _texts(entry, _READMES):
            yield {"id": f"packages/{name}/{file}", "text": text, "package": name, "kind": kind}


def installed(found: Iterable[Distribution]) -> dict[str, Distribution]:
    """Packages by name, sorted: the one that an import would find, and none whose metadata cannot be read."""
    packages: dict[str, Distribution] = {}
    for entry in found:
        try:
            name = entry.metadata["Name"]
        except (OSError, UnicodeDecodeError, KeyError):
            continue
        if name:
            packages.setdefault(name, entry)
    return dict(sorted(packages.items()))


def _modules(library: Path) -> Iterator[tuple[str, str]]:
    """Name and text of modules, those of installed packages left out."""
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        if not name.startswith(("site-packages/", "dist-packages/")) and (text := _text(path)):
            yield name, text


def _package(module: str) -> str:
    return module.partition("/")[0].removesuffix(".py")


def _topics() -> list[tuple[str, str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # Some systems leave Python's help out.
        return []
    return sorted(topics.items())


def _parsed(text: str) -> ast.Module:
    """The module's tree; an empty one where this Python cannot parse it, as some of its own tests intend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module(body=[], type_ignores=[])


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and its statements, nested ones too, as they stand; expressions, most of a tree, define nothing."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, _HOLD_STATEMENTS)]
        left += reversed(inner)


def _kind(name: str, kinds: Mapping[str, str]) -> str | None:
    """The kind of a text by the beginning of its file's name; None of code and of what is no such text."""
    if name.endswith((".py", ".pyc", ".pyi")):
        return None
    return next((kind for beginning, kind in kinds.items() if name.upper().startswith(beginning)), None)


def _texts(entry: Distribution, kinds: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, kind and text of a package's files of some kinds, each once."""
    for name, file in sorted({file.as_posix(): file for file in entry.files or ()}.items()):
        kind = _kind(file.name, kinds)
        if kind and (text := _text(Path(str(file.locate())))):
            # A file outside the packages' folder may be listed by where it is on this machine.
            yield file.name if PurePosixPath(name).is_absolute() else name, kind, text


def _text(path: Path) -> str | None:
    """A file's text, or None where it is empty or not UTF-8."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.strip() else None
