"""What a Parquet footer says of its row groups: sizes, and the bounds of columns.

pyarrow gives these figures too, but a damaged one ends the whole process: the objects that it makes for a
column throw where nothing catches. Here a footer that makes no sense is an error like any other.

A footer is a struct of Thrift's compact protocol. Only the fields named below are kept; numbers are those of
the Parquet format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

TAIL = 8  # bytes after the footer: its length and the magic
DEEPEST = 16  # structs in structs

TRUE, FALSE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)  # of 16, 32 and 64 bits, all as a zigzag varint
BYTE = 3

Fields = Mapping[int, Any]  # {number: what is wanted of the struct in it; {}: the value as it is}

STATISTICS: Fields = {5: {}, 6: {}}  # max and min; those of older writers have no defined order
COLUMN: Fields = {3: {}, 6: {}, 12: STATISTICS}  # path, uncompressed size
ROW_GROUP: Fields = {1: {3: COLUMN}, 2: {}, 3: {}}  # columns, size, rows
FILE: Fields = {4: ROW_GROUP}


class DamagedFooter(ValueError):
    """The footer is not what the format says."""


@dataclass(frozen=True)
class Column:
    """One column of a row group."""

    size: int  # bytes, uncompressed
    low: bytes | None  # as stored; None: not known
    high: bytes | None


@dataclass(frozen=True)
class RowGroup:
    """One row group."""

    rows: int
    size: int  # bytes of all columns, uncompressed
    columns: Mapping[str, Column]  # by path

    def bounds(self, name: str, kind: pa.DataType) -> tuple[Any, Any] | None:
        """Smallest and largest time or text of a column of this type; None where they are not known."""
        column = self.columns.get(name)
        read = reader_of(kind)
        if column is None or column.low is None or column.high is None or read is None:
            return None
        try:
            low, high = read(column.low), read(column.high)
        except (ValueError, OverflowError, pa.ArrowException):
            return None  # a time outside the years 1 to 9999, a text that is none: the rows will say
        return (low, high) if low <= high else None


def reader_of(kind: pa.DataType) -> Callable[[bytes], Any] | None:
    """How a bound of a column of this type is read; None for types that nobody asks for."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes.decode
    if pa.types.is_timestamp(kind):
        micro = pa.timestamp("us", kind.tz)

        def time(stored: bytes) -> Any:
            if len(stored) != 8:
                raise ValueError("not a number of 64 bits")
            number = int.from_bytes(stored, "little", signed=True)
            return pa.scalar(number, pa.int64()).cast(kind).cast(micro, safe=False).as_py()

        return time
    return None


def footer_length(source: bytes | BinaryIO) -> int:
    """The length of the footer by the last eight bytes of the file; 0 where there is none."""
    if isinstance(source, bytes):
        end, size = source[-8:], len(source)
    else:
        size = source.seek(0, 2)
        source.seek(max(0, size - 8))
        end = source.read(8)
        source.seek(0)
    length = int.from_bytes(end[:4], "little") if len(end) == 8 and end[4:] == b"PAR1" else 0
    return length if length <= size else 0  # longer than the file: damaged, as the reader will say


def row_groups(file_end: bytes) -> list[RowGroup]:
    """The row groups of a file that ends with these bytes, which hold the whole footer.

    Raises:
        DamagedFooter: the bytes are not a footer.
    """
    length = int.from_bytes(file_end[-TAIL:-4], "little")
    if len(file_end) < length + TAIL:
        raise DamagedFooter("it is longer than the file")
    try:
        found = Reader(file_end[-TAIL - length : -TAIL]).struct(FILE).get(4, [])
        return [_row_group(group) for group in found]
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise DamagedFooter(f"it does not follow the format ({type(error).__name__})") from error


def _row_group(group: dict[int, Any]) -> RowGroup:
    columns = {}
    for chunk in group[1]:
        facts = chunk[3]
        known = facts.get(12, {})
        path = ".".join(part.decode() for part in facts[3])
        columns[path] = Column(_number(facts[6]), _stored(known.get(6)), _stored(known.get(5)))
    return RowGroup(_number(group[3]), _number(group[2]), columns)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise DamagedFooter("a size is no number")
    return value


def _stored(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


class Reader:
    """Thrift's compact protocol, from the front to the back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, wanted: Fields | None, depth: int = 0) -> dict[int, Any]:
        """The wanted fields of a struct by their numbers; all others are passed over."""
        if depth > DEEPEST:
            raise DamagedFooter("structs are nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self.integer()
            below = wanted.get(number) if wanted else None
            value = self.value(kind, below, depth)
            if below is not None:
                found[number] = value
        return found

    def value(self, kind: int, wanted: Fields | None, depth: int, in_list: bool = False) -> Any:
        if kind in INTEGERS:
            return self.integer()
        if kind == BINARY:
            return self.bytes(self.varint())
        if kind == STRUCT:
            return self.struct(wanted, depth + 1)
        if kind in (LIST, SET):
            head = self.byte()
            many, of = head >> 4, head & 15
            many = self.room(self.varint() if many == 15 else many)
            return [self.value(of, wanted, depth + 1, True) for _ in range(many)]
        if kind in (TRUE, FALSE):
            return self.byte() == TRUE if in_list else kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind == DOUBLE:
            return self.bytes(8)
        if kind == MAP:
            many = self.room(self.varint())
            kinds = self.byte() if many else 0
            return [
                (self.value(kinds >> 4, None, depth + 1, True), self.value(kinds & 15, None, depth + 1, True))
                for _ in range(many)
            ]
        raise DamagedFooter(f"there is no type {kind}")

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, length: int) -> bytes:
        start, self.at = self.at, self.at + self.room(length)
        return self.data[start : self.at]

    def room(self, length: int) -> int:
        """`length`, if so many bytes are left: no element takes less than one."""
        if length > len(self.data) - self.at:
            raise DamagedFooter("a part of it is longer than the whole")
        return length

    def varint(self) -> int:
        number = shift = 0
        while (byte := self.byte()) >= 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise DamagedFooter("a number has more than 64 bits")
        return number | byte << shift

    def integer(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)
