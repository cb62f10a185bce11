"""`pagoda show`: what is known about a model, from its manifest and from its header."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda.core.sampling_defaults import SamplingDefaults
    from pagoda.weights.description import ModelDescription
    from pagoda.weights.manifest import Manifest
    from pagoda.weights.store import ModelStore

EXAMPLES = """\
  pagoda show smollm2
  pagoda show ./model.gguf
  pagoda show --json smollm2
  pagoda show --verify smollm2
  pagoda show --licence gemma3-270m
"""

_LICENCE_WORDS = ("LICENSE", "LICENCE", "NOTICE", "TERMS", "POLICY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name from `pagoda list`, a .gguf file or a model folder")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--licence", action="store_true", help="print the licence texts that came with the model")
    parser.add_argument("--verify", action="store_true", help="hash every file again and compare with the manifest")


def main(args: argparse.Namespace) -> int:
    import msgspec

    from pagoda.core.errors import ModelFileError
    from pagoda.weights.description import describe_model
    from pagoda.weights.sampling_defaults import recommended_by
    from pagoda.weights.store import ModelStore, resolve_model

    store = ModelStore()
    path = resolve_model(args.model, store)
    manifest = store.manifest_at(path)
    if args.verify:
        _verify(store, manifest, args.model)
    if args.licence:
        print("\n\n".join(_licence_texts(manifest, path)) or f"no licence text came with {args.model}")
        return 0
    description = describe_model(path)
    defaults: SamplingDefaults | str
    try:
        defaults = recommended_by(path)
    except ModelFileError as error:
        defaults = str(error)
    if args.json:
        record = {"path": str(path), "manifest": manifest, "header": description, "sampling_defaults": defaults}
        print(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())
    else:
        print("\n".join(f"{label + ':':<15}{value}" for label, value in _lines(path, manifest, description, defaults)))
        if args.verify:
            print("every file is as it was pulled")
    return 0


def _verify(store: ModelStore, manifest: Manifest | None, model: str) -> None:
    from pagoda.cli.progress import show_progress
    from pagoda.core.errors import InvalidRequest

    if manifest is None:
        raise InvalidRequest("--verify", f"{model} was not pulled, so there is nothing to compare with")
    with show_progress() as progress:
        store.verify(manifest, progress)


def _lines(
    path: Path, manifest: Manifest | None, description: ModelDescription, defaults: SamplingDefaults | str
) -> Iterator[tuple[str, str]]:
    from pagoda.cli.formatting import format_bytes, format_count

    if manifest is not None:
        yield "name", manifest.name
        yield "source", manifest.source
        yield "licence", _licence(manifest)
        yield "pulled", manifest.pulled_at
    yield "path", str(path)
    if manifest is not None:
        for file in manifest.files:
            yield "file", f"{file.name}  {format_bytes(file.num_bytes)}  sha256 {file.sha256}"
    formats = ", ".join(f"{name} x{number}" for name, number in description.num_tensors.items())
    facts = (
        ("architecture", description.architecture),
        ("parameters", format_count(description.num_parameters)),
        ("layers", description.num_layers),
        ("heads", description.num_heads),
        ("kv heads", description.num_kv_heads),
        ("embedding", description.embedding_length),
        ("context", description.context_length),
        ("vocabulary", description.vocabulary_size),
        ("tensors", formats),
        ("draws with", str(defaults) or None),
    )
    yield from ((label, str(value)) for label, value in facts if value is not None)


def _licence(manifest: Manifest) -> str:
    has_text = any(_is_licence_text(file.name) for file in manifest.files)
    hint = f" (its text: pagoda show --licence {manifest.name})" if has_text else ""
    return (manifest.licence or "not stated") + hint


def _is_licence_text(file_name: str) -> bool:
    return any(word in file_name.upper() for word in _LICENCE_WORDS)


def _licence_texts(manifest: Manifest | None, path: Path) -> Iterator[str]:
    if manifest is None:
        return
    folder = path.parent if manifest.model != "." else path
    for file in manifest.files:
        if _is_licence_text(file.name):
            text = (folder / file.name).read_text(encoding="utf-8", errors="replace")
            yield _plain_text(text) if file.name.endswith(".html") else text.strip()


def _plain_text(html: str) -> str:
    reader = _TextOfPage(within_article="<article" in html)
    reader.feed(html)
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).splitlines())
    return "\n".join(line for line in lines if line)


class _TextOfPage(HTMLParser):
    """Collects the words of a page, or of its article where it marks one; a block element ends a line."""

    _HIDDEN = frozenset({"script", "style", "head", "nav", "header", "footer", "svg", "template"})
    _BLOCKS = frozenset({"p", "div", "li", "h1", "h2", "h3", "h4", "tr", "section", "article", "br", "ul", "ol"})

    def __init__(self, within_article: bool) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._num_hidden = 0
        self._is_inside = not within_article
        self._within_article = within_article

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._num_hidden += tag in self._HIDDEN
        self._is_inside |= tag == "article"
        self._end_line(tag)

    def handle_endtag(self, tag: str) -> None:
        self._num_hidden -= tag in self._HIDDEN and self._num_hidden > 0
        self._is_inside &= not (self._within_article and tag == "article")
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if self._is_inside and not self._num_hidden:
            self.pieces.append(data)

    def _end_line(self, tag: str) -> None:
        if tag in self._BLOCKS:
            self.pieces.append("\n")
