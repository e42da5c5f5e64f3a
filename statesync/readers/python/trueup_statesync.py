"""A reader of the statesync protocol: a proven copy of one scope, by the standard library of Python 3.9 alone.

docs/protocol.md describes the protocol. As a program: STATESYNC_TOKEN=... trueup_statesync.py URL SCOPE
"""

import hashlib
import http.client
import json
import os
import random
import socket
import struct
import sys
import time
import urllib.parse
from typing import NamedTuple

Key = NamedTuple("Key", [("collection", str), ("id", str)])
# items are the live items by key, a copy. deleted are the keys of tombstones since the last state. absent are keys that
# a proven list lacks: no order to delete.
State = NamedTuple("State", [("epoch", str), ("version", int), ("items", dict), ("deleted", set), ("absent", set)])


class Stopped(Exception):
    """The server refuses the credential or the request: trying again cannot help."""


class Refused(Exception):
    """A frame fails a check, or the cursor cannot be resumed: only a list can prove the state again."""


class Outage(Exception):
    """The stream ended: come back with the cursor."""


def field(of, name, kind=int, default=None):
    value = of.get(name, kind() if default is None else default)
    if type(value) is not kind or kind is int and not 0 <= value < 1 << 63:
        raise Outage(f"{name}: is {value!r}, must be a {kind.__name__}")
    return value


class Live:
    """A set of live items, and the sum of their hashes."""

    def __init__(self):
        self.items = {}
        self.sum = struct.unpack(">4Q", hashlib.sha256(b"trueup statesync").digest())

    def add(self, key, version, sign):
        text = key.collection.encode() + b"\0" + key.id.encode() + b"\0" + struct.pack(">Q", version)
        words = struct.unpack(">4Q", hashlib.sha256(text).digest())
        self.sum = tuple((a + sign * b) % (1 << 64) for a, b in zip(self.sum, words))

    def put(self, key, item):
        if key in self.items:
            self.add(key, self.items.pop(key)["version"], -1)
        if not item.get("deleted"):
            self.items[key] = item
            self.add(key, item["version"], +1)

    def digest(self):
        return "".join(f"{word:016x}" for word in self.sum)


class Copy:
    """The state of one reader. It checks each frame, and knows nothing of HTTP."""

    def __init__(self):
        self.epoch, self.version, self.mark = "", 0, ""  # the cursor
        self.live, self.proven, self.handed = Live(), {}, None
        self.seen, self.left = ("", 0), set()  # the highest version of the newest epoch, and the earlier epochs
        self.begin()

    def begin(self):
        """Begin a stream and return the parameters of its request."""
        self.list = None if self.version else Live()
        if self.list:
            self.deleted = set()
        self.stream, self.at = "", self.version
        cursor = {"after": str(self.version), "epoch": self.epoch, "mark": self.mark} if self.version else {}
        return {name: value for name, value in cursor.items() if value}

    def doubt(self, lost_history=False):
        """Ask for everything again. The last proven state stays."""
        self.epoch, self.version, self.mark = "", 0, ""
        if lost_history:
            self.seen = ("", 0)

    def take(self, frame):
        """Check one frame, and return the state if the frame proves another one than before."""
        kind, epoch, more = field(frame, "type", str), field(frame, "epoch", str), field(frame, "more", bool)
        after, version, head = field(frame, "after"), field(frame, "version"), field(frame, "head")
        if (kind == "header") != (self.stream == ""):
            raise Refused(f"place: {kind}")
        if kind == "header":
            if epoch in self.left or epoch == self.seen[0] and head < self.seen[1]:
                raise Refused(f"behind: head {head} of {epoch}, {self.seen[1]} of {self.seen[0]} was seen")
            if not epoch or version != self.at or not self.list and epoch != self.epoch:
                raise Refused(f"header: version {version} of {epoch}")
            self.stream = epoch
            return None
        if epoch != self.stream or after != self.at or version < after:
            raise Refused(f"gap: from {after} to {version} of {epoch}, expected from {self.at} of {self.stream}")
        last, changes = after, []
        for item in field(frame, "items", list):
            key = Key(field(item, "collection", str), field(item, "id", str))
            if not last < field(item, "version") <= version:
                raise Refused(f"gap: {key} at version {item.get('version')}, after {last}, in a frame to {version}")
            last = item["version"]
            changes.append((key, item, field(item, "deleted", bool)))
        if self.seen[0] not in ("", epoch):
            self.left.add(self.seen[0])
        self.seen = (epoch, max(version, self.seen[1] if self.seen[0] == epoch else 0))
        if not (kind == "bookmark" or kind == ("items" if self.list else "changes") or
                kind == "synced" and self.list and after == version and not more):
            raise Refused(f"place: {kind}")
        live = self.list or self.live
        for key, item, deleted in changes:
            live.put(key, item)
            (self.deleted.add if deleted else self.deleted.discard)(key)
        proves = not more and (kind == "synced" or not self.list)
        if proves and (field(frame, "count"), field(frame, "digest", str)) != (len(live.items), live.digest()):
            raise Refused(f"proof: {len(live.items)} items at version {version}, expected {frame.get('count', 0)}, or another digest")
        self.at = version
        if kind == "synced":
            self.live, self.list, self.epoch = live, None, epoch
        if not self.list:
            self.version, self.mark = version, field(frame, "mark", str) or self.mark
        if not proves or kind != "synced" and self.handed == (epoch, version):
            return None
        gone = self.proven.keys() - live.items.keys() - self.deleted if kind == "synced" else set()
        state = State(epoch, version, dict(live.items), self.deleted, gone)
        self.proven, self.handed, self.deleted = state.items, (epoch, version), set()
        return state


class Reader:
    def __init__(self, url, scope, token="", patience=10.0):
        self.url, self.token, self.patience = urllib.parse.urlsplit(url), token, patience
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            raise ValueError("url: must be an http or https URL, such as https://control.example/sync")
        self.path = f"{self.url.path.rstrip('/')}/scopes/{urllib.parse.quote(scope, safe='')}/items?"
        self.copy, self.end, self.bound = Copy(), None, 60.0
        self.ended = lambda end: None  # called after each stream, with the reason

    def states(self):
        """Yield each proven state, for ever. It raises Stopped after 400, 401 and 403."""
        away = doubts = 0  # how long there was no stream, and how often the copy was left in doubt
        while True:
            began, self.bound, self.end = time.monotonic(), 60.0, None
            try:
                yield from self._stream()
            except Refused as refused:
                self.end = refused
                self.copy.doubt(lost_history="other-history" in str(refused))
            except (Outage, OSError, http.client.HTTPException, ValueError, TypeError, AttributeError) as outage:
                self.end = outage
            self.ended(self.end)
            lasted = time.monotonic() - began
            if not self.copy.stream:
                away += lasted
            elif lasted >= 60:
                away = doubts = 0
            bound = 0.5 * 2 ** min(doubts, 7) if isinstance(self.end, Refused) else max(0.5, away)
            doubts += isinstance(self.end, Refused)
            pause = random.uniform(0, min(self.bound, bound))
            away += pause
            time.sleep(pause)

    def _stream(self):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=self.patience)
        try:
            connection.connect()
            wire = connection.sock  # the connection lets go of it if the answer says that it closes
            query = urllib.parse.urlencode({"watch": "true", **self.copy.begin()})
            connection.request("GET", self.path + query, headers={"Authorization": f"Bearer {self.token}"} if self.token else {})
            answer = connection.getresponse()
            if answer.status != 200:
                self._judge(answer.status, answer.read(1 << 16))
            silence = self.patience
            for line in _lines(answer, wire, lambda: silence):
                frame = json.loads(line)
                if "error" in frame:
                    self._judge(200, line)
                state = self.copy.take(frame)
                if frame["type"] == "header" and field(frame, "heartbeat"):
                    silence = 2 * frame["heartbeat"] / 1e9
                if state:
                    yield state
        finally:
            connection.close()

    def _judge(self, status, body):
        """Raise what an answer, or the last line of a stream, means."""
        try:
            error = json.loads(body)["error"]
            code, reason = field(error, "code", str), field(error, "reason", str)
        except (ValueError, TypeError, KeyError, AttributeError):
            code, reason = "", ""  # of a proxy
        if status in (401, 403) or code in ("unauthenticated", "invalid"):
            raise Stopped(f"{status} {code}")
        if code in ("unknown_scope", "resync_required"):
            raise Refused(f"{code} {reason}")
        self.bound = 4.0 if code == "unavailable" else self.bound
        raise Outage(f"{status} {code} {reason}")


def _lines(answer, wire, silence):
    """Yield each whole line. The time from one line to the next is bounded, however its bytes drip."""
    text, until = b"", time.monotonic() + silence()
    while True:
        left = until - time.monotonic()
        if left <= 0 or len(text) > 16 << 20:
            raise socket.timeout("no frame in time, or too long a line")
        wire.settimeout(left)
        part = answer.read1(1 << 16)
        if not part:
            raise Outage("the stream was cut")
        *lines, text = (text + part).split(b"\n") if b"\n" in part else (text + part,)
        for line in lines:
            yield line
        until = time.monotonic() + silence() if lines else until


def main():
    def keys(of):
        return [key._asdict() for key in sorted(of)]

    if len(sys.argv) != 3 or not sys.argv[1].startswith(("http://", "https://")):
        print("usage: trueup_statesync.py http[s]://HOST/PATH SCOPE; the token is in STATESYNC_TOKEN", file=sys.stderr)
        sys.exit(2)
    reader, said = Reader(sys.argv[1], sys.argv[2], os.environ.get("STATESYNC_TOKEN", "")), set()

    def say(end):  # each reason once
        if str(end) not in said:
            said.add(str(end))
            print(f"no stream: {end}; it tries again", file=sys.stderr, flush=True)

    reader.ended = say
    for state in reader.states():
        print(json.dumps({"epoch": state.epoch, "version": state.version, "items": list(state.items.values()),
                          "deleted": keys(state.deleted), "absent": keys(state.absent)}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Stopped as stopped:
        sys.exit(f"stopped: {stopped}")
