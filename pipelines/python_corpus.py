"""The newcomer's own Python installation as a corpus: real text with real duplicates, and nothing to download.

Four sources: the standard library's code, its documentation (help topics and docstrings), the descriptions of
installed packages, and licence texts. Licences repeat in nearly every package, so there is something to deduplicate.
"""

from __future__ import annotations

import ast
import json
import pydoc_data.topics
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from dataeff import Dedup, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.filters import GopherQuality, GopherRepetition, Length
from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar
from dataeff.mixers import Unimax
from dataeff.tokenizers import TrainedBpe

Document = dict[str, str]
PROSE = ("docs", "packages")
"""Sources that rules for prose are made for."""
_SHORT_DOCSTRING = 80
"""Letters below which a docstring is no document."""


def python_corpus(
    gathered: Path = Path("build/python_corpus"),
    max_bytes: int = 24_000_000,
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


def gather(into: Path, max_bytes: int) -> list[Path]:
    """Write the installation's text as JSON lines, a file a source.

    Files are only rewritten where their content changed, so that a second run finds its input as it was.

    Args:
        into: Folder, made if need be.
        max_bytes: Most bytes of text a source; what comes first by name is taken.

    Returns:
        The files, in order of sources.
    """
    into.mkdir(parents=True, exist_ok=True)
    sources = {
        "code": _code(),
        "docs": _docs(),
        "licences": _licences(),
        "packages": _packages(),
    }
    return [_write(into / f"{source}.jsonl", source, documents, max_bytes) for source, documents in sources.items()]


def _write(path: Path, source: str, documents: Iterable[Document], max_bytes: int) -> Path:
    lines = []
    left = max_bytes
    for document in documents:
        left -= len(document["text"].encode())
        if left < 0:
            break
        lines.append(json.dumps({"source": source, **document}, ensure_ascii=False) + "\n")
    content = "".join(lines).encode()
    if not path.is_file() or path.read_bytes() != content:
        path.write_bytes(content)
    return path


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _modules() -> Iterator[tuple[str, str]]:
    """Name and text of the standard library's modules, tests included, installed packages not."""
    root = _library()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(("site-packages/", "dist-packages/")) and (text := _text(path)):
            yield name, text


def _code() -> Iterator[Document]:
    for name, text in _modules():
        yield {"id": f"code/{name}", "text": text, "package": name.partition("/")[0].removesuffix(".py")}


def _docs() -> Iterator[Document]:
    for topic, text in sorted(pydoc_data.topics.topics.items()):
        yield {"id": f"docs/topic/{topic}", "text": text, "package": "pydoc"}
    for name, text in _modules():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                docstring = ast.get_docstring(node)
                if docstring and len(docstring) >= _SHORT_DOCSTRING:
                    at = f"{getattr(node, 'name', 'module')}:{getattr(node, 'lineno', 0)}"
                    yield {"id": f"docs/{name}/{at}", "text": docstring, "package": name.partition("/")[0]}


def _installed() -> list[tuple[str, Distribution]]:
    named = {entry.metadata["Name"]: entry for entry in distributions() if entry.metadata["Name"]}
    return sorted(named.items())


def _packages() -> Iterator[Document]:
    for name, entry in _installed():
        description = entry.metadata.get_payload() or entry.metadata.get("Description")  # type: ignore[attr-defined]
        if isinstance(description, str) and description.strip():
            yield {"id": f"packages/{name}/description", "text": description, "package": name}
        for file, text in _texts(entry, ("README", "CHANGES", "HISTORY", "NEWS")):
            yield {"id": f"packages/{name}/{file}", "text": text, "package": name}


def _licences() -> Iterator[Document]:
    for path in sorted(_library().rglob("LICENSE*")):
        name = path.relative_to(_library()).as_posix()
        if not name.startswith(("site-packages/", "dist-packages/")) and path.is_file() and (text := _text(path)):
            yield {"id": f"licences/python/{name}", "text": text, "package": "python"}
    for name, entry in _installed():
        for file, text in _texts(entry, ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")):
            yield {"id": f"licences/{name}/{file}", "text": text, "package": name}


def _texts(entry: Distribution, beginnings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of a package's files whose names begin so."""
    for file in sorted(entry.files or [], key=str):
        if file.name.upper().startswith(beginnings) and not file.name.endswith((".py", ".pyc", ".pyi")):
            text = _text(Path(str(file.locate())))
            if text:
                yield file.as_posix(), text


def _text(path: Path) -> str | None:
    """A file's text, or None where it is empty or not UTF-8."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.strip() else None
