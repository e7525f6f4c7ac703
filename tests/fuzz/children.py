"""Runs functions in processes of their own, so that a crash or a hang is only an answer."""

import dataclasses
import os
import pickle
import select
import signal
import struct
import time


@dataclasses.dataclass(frozen=True)
class Died:
    """A child that gave no answer."""

    how: str  # "crash: SIGSEGV", "hang"


class Child:
    """A forked process that sends objects until it ends."""

    def __init__(self, work):
        """`work` is called with a function that sends an object to the parent."""
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            self._be_the_child(work, writing)
        os.close(writing)
        self.reading, self.buffer = reading, b""
        self.heard = time.monotonic()

    def _be_the_child(self, work, writing):
        status = 1
        try:
            import faulthandler

            faulthandler.disable()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            work(lambda item: os.write(writing, framed(item)))
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)

    def received(self, seconds):
        """What came within that time: a list of objects, None at the end."""
        ready, _, _ = select.select([self.reading], [], [], seconds)
        if not ready:
            return []
        data = os.read(self.reading, 1 << 20)
        if not data:
            return None
        self.heard = time.monotonic()
        self.buffer += data
        items = []
        while len(self.buffer) >= 4:
            (size,) = struct.unpack("<I", self.buffer[:4])
            if len(self.buffer) < 4 + size:
                break
            items.append(pickle.loads(self.buffer[4 : 4 + size]))
            self.buffer = self.buffer[4 + size :]
        return items

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def ended(self):
        """Waits for the end: None, or how it died."""
        os.close(self.reading)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return Died(f"crash: {signal.Signals(os.WTERMSIG(status)).name}")
        if os.WEXITSTATUS(status):
            return Died(f"crash: status {os.WEXITSTATUS(status)}")
        return None


def framed(item):
    data = pickle.dumps(item)
    return struct.pack("<I", len(data)) + data


def in_child(function, seconds):
    """What the function returns, or Died."""
    child = Child(lambda send: send(function()))
    answer, end = [], time.monotonic() + seconds
    while True:
        items = child.received(max(0.0, end - time.monotonic()))
        if items is None:
            break
        answer += items
        if not items and time.monotonic() >= end:
            child.kill()
            child.ended()
            return Died("hang")
    died = child.ended()
    return answer[0] if answer else died or Died("crash: no answer")
