"""The small language of `palisade txn`. Pure.

    compare
        version /leader = 0
    success
        put /leader n1
        put /leader/since 2013-01-01 lease=77
    failure
        get /leader

Targets are version, create, mod, lease (numbers) and value (text); relations =, !=, <, >. Operations are put KEY VALUE
[lease=N], delete KEY, delete-prefix P, get KEY, get-prefix P. Words with blanks are quoted as in a shell; # begins a
comment. then and else are old names of success and failure. Nested transactions and binary values need the JSON form
(`txn_json.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.cli.txn_form import OLD_SECTIONS, SECTIONS, FormError, Operation, compare, key_bytes, number, quoted
from palisade.cli.txn_words import words_of
from palisade.metastore.requests import Compare, DeleteRange, Put, Range, Txn, prefix_end


def parse_text(text: str, old: set[str]) -> Txn:
    """`old`: gets the old names of sections that are used. Raises FormError."""
    sections: dict[str, list[list[str]]] = {name: [] for name in SECTIONS}
    section = None
    for line_number, line in enumerate(text.splitlines(), 1):
        try:
            words = words_of(line)
            if len(words) == 1 and OLD_SECTIONS.get(words[0], words[0]) in SECTIONS:
                section = OLD_SECTIONS.get(words[0], words[0])
                old |= {words[0]} & OLD_SECTIONS.keys()
            elif words and section is None:
                raise FormError("begin with one of the words compare, success, failure on a line of its own")
            elif words and section is not None:
                sections[section].append(words)
                _check_line(section, words)
        except ValueError as error:
            raise FormError(f"line {line_number}: {quoted(line.strip())}: {error}") from None
    if not any(sections.values()):
        raise FormError("the transaction is empty; 'palisade txn --help' shows an example")
    return Txn(
        compare=tuple(map(_text_compare, sections["compare"])),
        success=tuple(map(_text_operation, sections["success"])),
        failure=tuple(map(_text_operation, sections["failure"])),
    )


def _check_line(section: str, words: list[str]) -> None:
    (_text_compare if section == "compare" else _text_operation)(words)


def _text_compare(words: Sequence[str]) -> Compare:
    if len(words) != 4:
        raise FormError("a compare is TARGET KEY RELATION OPERAND, such as: version /a = 0")
    target, key, relation, operand = words
    return compare(target, key_bytes(key), relation, operand, b"")


def _text_operation(words: Sequence[str]) -> Operation:
    match words:
        case ["put", key, value]:
            return Put(key_bytes(key), key_bytes(value))
        case ["put", key, value, lease] if lease.startswith("lease="):
            return Put(key_bytes(key), key_bytes(value), lease=number("lease", lease.removeprefix("lease=")))
        case ["delete", key]:
            return DeleteRange(key_bytes(key))
        case ["delete-prefix", prefix]:
            return DeleteRange(key_bytes(prefix), prefix_end(key_bytes(prefix)))
        case ["get", key]:
            return Range(key_bytes(key))
        case ["get-prefix", prefix]:
            return Range(key_bytes(prefix), prefix_end(key_bytes(prefix)))
    raise FormError("an operation is put KEY VALUE [lease=N], delete KEY, delete-prefix P, get KEY or get-prefix P")
