"""Guests of one sector: they write to the serial port, wait, and power off. They boot in half a second without hardware support.

For tests with hundreds of virtual machines on two cores. tools/system/debian-guest has a real Linux.
"""

from __future__ import annotations

import struct

SIZE = 1 << 20  # bytes of the image; the BIOS boots no smaller virtio disk
TICKS = 18.2  # of the BIOS's clock, a second
LONGEST = 0xFFFF / TICKS  # seconds, an hour
HELLO = "the guest is up\r\n"
DIRECTION_CLEAR, ENABLED = "fa31c08ed88ed0bc007cfc", "fb"  # cli; ds = ss = 0; sp = 7c00h; cld; ...; sti
POWER_OFF = "ba0406b80020ef"  # mov dx,604h; mov ax,2000h; out dx,ax: ACPI S5
HANG = "f4ebfd"  # hlt; jmp


class _Code:
    """Machine code with places that are known later."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.places: dict[str, int] = {}
        self._short: list[tuple[int, str]] = []
        self._near: list[tuple[int, str]] = []
        self._absolute: list[tuple[int, str]] = []

    def put(self, text: str) -> None:
        self.bytes += bytes.fromhex(text)

    def here(self, name: str) -> None:
        self.places[name] = len(self.bytes)

    def jump(self, code: str, to: str) -> None:
        """Jump, with a displacement of one byte."""
        self.put(code + "00")
        self._short.append((len(self.bytes), to))

    def say(self, what: str) -> None:
        """Print a string: mov si,ADDRESS; call print"""
        self.put("be0000")
        self._absolute.append((len(self.bytes), what))
        self.put("e80000")
        self._near.append((len(self.bytes), "print"))

    def sector(self) -> bytes:
        for at, name in self._short:
            struct.pack_into("<b", self.bytes, at - 1, self.places[name] - at)
        for at, name in self._near:
            struct.pack_into("<h", self.bytes, at - 2, self.places[name] - at)
        for at, name in self._absolute:
            struct.pack_into("<H", self.bytes, at - 2, 0x7C00 + self.places[name])
        assert len(self.bytes) <= 510
        return bytes(self.bytes).ljust(510, b"\0") + b"\x55\xaa"


def tiny_guest(seconds: float = LONGEST, last: str = "", *, hears: bool = False) -> bytes:
    """Return an image that powers off after so many seconds and writes `last` before it does. If it hears the power button, it powers off at once."""
    code = _Code()
    code.put(DIRECTION_CLEAR + ENABLED)
    if hears:
        code.put("ba0206b80001ef")  # mov dx,602h; mov ax,100h; out dx,ax: enable the power button
    code.say("hello")
    code.put("b9" + struct.pack("<H", round(seconds * TICKS)).hex())  # mov cx,N
    code.here("tick")
    code.put("8b1e6c04")  # mov bx,[046ch]: the clock
    code.here("wait")
    code.put("f4")  # hlt
    if hears:
        code.put("ba0006edf6c401")  # mov dx,600h; in ax,dx; test ah,1
        code.jump("75", "off")  # jnz
    code.put("3b1e6c04")  # cmp bx,[046ch]
    code.jump("74", "wait")  # je
    code.jump("e2", "tick")  # loop
    code.say("last")
    code.here("off")
    code.put(POWER_OFF + HANG)
    code.here("print")
    # lodsb; test al,al; jz end; mov ah,al; mov dx,3fdh; wait: in al,dx; test al,20h; jz wait; mov al,ah; mov dx,3f8h; out dx,al; jmp print; end: ret
    code.put("ac84c0741288c4bafd03eca82074fb88e0baf803eeebe9c3")
    for name, text in (("hello", HELLO), ("last", last)):
        code.here(name)
        code.bytes += text.encode() + b"\0"
    return code.sector().ljust(SIZE, b"\0")
