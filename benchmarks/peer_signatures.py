"""One contestant of the benchmark `signatures`: text to MinHash signatures, as its users would do it.

Run by the contestant's own Python as `peer_signatures.py NAME`; imports nothing of ours but in the role of ours. Each
question names a JSON file of texts; the answer has the seconds and, if asked, signatures of pairs for the parity
check: the share of equal values of texts 2i and 2i + 1.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_PERM = 128
NGRAM = 5
BANDS = 16


def word_ngrams(text: str) -> list[str]:
    """Lower-case word 5-grams, as the packages' own examples make them."""
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[at : at + NGRAM]) for at in range(max(1, len(words) - NGRAM + 1))]


def ours() -> Callable[[list[str]], Any]:
    """From an Arrow array of the texts."""
    import numpy as np
    import pyarrow as pa

    from dataeff.arrow import text_views
    from dataeff.kernel import minhash
    from dataeff.kernel.shingles import sketch

    a, b = minhash.permutations(NUM_PERM, 1)
    arrays: dict[int, Any] = {}

    def signatures(texts: list[str]) -> Any:
        data, offsets = arrays[id(texts)]
        return sketch(data, offsets, unit="word", n=NGRAM, a=a, b=b)[0]

    def prepare(texts: list[str]) -> None:
        # Text comes to us in Arrow buffers, as it comes to the others in Python strings.
        arrays[id(texts)] = text_views(pa.array(texts, pa.large_string()))

    sketch(*text_views(pa.array(["to compile, é"], pa.large_string())), a=a, b=b)
    signatures.prepare = prepare
    signatures.equal = lambda found, i, j: float(np.mean(found[i] == found[j]))
    return signatures


def gaoya() -> Callable[[list[str]], Any]:
    """Into its index, the only way to its signatures from Python; its tokens are made in Rust."""
    from gaoya.minhash import MinHashStringIndex

    def signatures(texts: list[str]) -> Any:
        index = MinHashStringIndex(32, 0.8, BANDS, NUM_PERM // BANDS, None, "word", True, (NGRAM, NGRAM), "vec")
        index.par_bulk_insert_docs(list(range(len(texts))), texts)
        return index, texts

    def equal(found: Any, i: int, j: int) -> float:
        index, texts = found
        return float(j in index.query(texts[i]))

    signatures.equal = equal
    return signatures


def rensa() -> Callable[[list[str]], Any]:
    """Its full-set path over token sets made in Python."""
    from rensa import RMinHash

    def signatures(texts: list[str]) -> Any:
        return RMinHash.digest_matrix_from_token_sets([word_ngrams(text) for text in texts], NUM_PERM, 42)

    def equal(found: Any, i: int, j: int) -> float:
        rows = found.to_rows()
        return float(sum(left == right for left, right in zip(rows[i], rows[j], strict=True))) / NUM_PERM

    signatures.equal = equal
    return signatures


def datasketch() -> Callable[[list[str]], Any]:
    """`MinHash.update_batch` of tokens made in Python."""
    import numpy as np
    from datasketch import MinHash

    def signatures(texts: list[str]) -> Any:
        made = []
        for text in texts:
            sketch = MinHash(num_perm=NUM_PERM)
            sketch.update_batch([ngram.encode() for ngram in word_ngrams(text)])
            made.append(sketch.hashvalues)
        return made

    signatures.equal = lambda found, i, j: float(np.mean(found[i] == found[j]))
    return signatures


def datatrove() -> Callable[[list[str]], Any]:
    """The signature step of its MinHash pipeline, with its default English word tokenizer."""
    import atexit
    import tempfile

    import numpy as np
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature

    config = MinhashConfig(n_grams=NGRAM, num_buckets=BANDS, hashes_per_bucket=NUM_PERM // BANDS)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    step = MinhashDedupSignature(folder.name, config)

    def signatures(texts: list[str]) -> Any:
        made = []
        for text in texts:
            shingles = step.get_shingles(text)
            made.append(np.concatenate(step.get_signature(shingles)) if shingles.size else np.zeros(NUM_PERM))
        return made

    signatures.equal = lambda found, i, j: float(np.mean(found[i] == found[j]))
    return signatures


def main() -> None:
    """Serve questions."""
    sys.path.insert(0, sys.path[0].rpartition("/")[0])
    signatures = {entry.__name__: entry for entry in (ours, gaoya, rensa, datasketch, datatrove)}[sys.argv[1]]()
    loaded: dict[str, list[str]] = {}
    for line in sys.stdin:
        question = json.loads(line)
        path = question["texts"]
        if path not in loaded:
            loaded[path] = json.loads(Path(path).read_text(encoding="utf-8"))
        texts = loaded[path]
        getattr(signatures, "prepare", lambda _: None)(texts)
        began = time.perf_counter()
        found = signatures(texts)
        answer: dict[str, Any] = {"seconds": time.perf_counter() - began}
        if question.get("parity"):
            answer["equal"] = [signatures.equal(found, at, at + 1) for at in range(0, len(texts), 2)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
