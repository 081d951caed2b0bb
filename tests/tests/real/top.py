#!/usr/bin/env python3
"""top.py NACRE: runs `nacre top` on a terminal of 80 columns and 24 lines, presses keys, ends it by a key and by a signal, and says what
the terminal was like: one line of JSON."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE_S = 30


class Screen:
    """The program on its terminal, and what it wrote."""

    def __init__(self, program):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        ends = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        self.child = subprocess.Popen([program, "top", "-i", "0.5"], start_new_session=True, **ends)
        self.written = ""

    def wait_for(self, text):
        """Until it wrote this, and then forgets what it wrote."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.written:
            assert time.monotonic() < end, f"no '{text}' in {self.written[-3000:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.written += os.read(self.master, 65536).decode("utf-8", "replace")
        out, self.written = self.written, ""
        return out

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        """The exit status, whether the terminal is as it was, and what came last."""
        end = time.monotonic() + PATIENCE_S
        while self.child.poll() is None:
            assert time.monotonic() < end, "it does not end"
            if select.select([self.master], [], [], 0.1)[0]:
                self.written += os.read(self.master, 65536).decode("utf-8", "replace")
        while select.select([self.master], [], [], 0.1)[0]:
            self.written += os.read(self.master, 65536).decode("utf-8", "replace")
        same = termios.tcgetattr(self.slave) == self.before
        return {"status": self.child.returncode, "same": same, "left": "\x1b[?1049l" in self.written}


def widest(text):
    """The most characters that were written in one line of the screen: between two places of the cursor."""
    runs = re.split(r"\x1b\[\d+;\d+H", text)
    return max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", r)) for r in runs)


def main():
    s = Screen(sys.argv[1])
    first = s.wait_for("-OST0000")
    s.wait_for("written ")
    raw = termios.tcgetattr(s.slave) != s.before
    s.press("j")
    s.wait_for("nacre top - jobs")
    s.press("l")
    s.wait_for("nacre top - latencies")
    s.press("/writ\r")
    filtered = s.wait_for("filter: writ (Escape")
    s.press("h")
    s.wait_for("stand still")
    s.press("q")
    by_key = s.ended()
    ends = [by_key]
    for how in ("signal", "control"):
        s = Screen(sys.argv[1])
        s.wait_for("written ")
        if how == "signal":
            s.child.send_signal(signal.SIGTERM)
        else:
            s.press("\x03")
        ends.append(s.ended())
    print(json.dumps({"raw": raw, "alternate": "\x1b[?1049h" in first, "widest": widest(first + filtered), "ends": ends}))


main()
