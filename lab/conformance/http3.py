#!/usr/bin/env python3
"""A second client of HTTP/3: conversations in good order, and every rule of RFC 9114 and RFC 9204 that a client can break.

    http3.py PORT AUTHORITY

The product listens on 127.0.0.1:PORT and go-httpbin is behind it. Prints a line for each case: verdict, name and reason, with
tabs between them. Needs aioquic.
"""

import asyncio
import inspect
import json
import sys

import pylsqpack
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

PORT, AUTHORITY_FILE = int(sys.argv[1]), sys.argv[2]
PATIENCE = 20
DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 13
STREAM_CREATION_ERROR, CLOSED_CRITICAL_STREAM, FRAME_UNEXPECTED, FRAME_ERROR = 0x103, 0x104, 0x105, 0x106
ID_ERROR, SETTINGS_ERROR, MISSING_SETTINGS, MESSAGE_ERROR = 0x108, 0x109, 0x10A, 0x10E
DECOMPRESSION_FAILED, ENCODER_STREAM_ERROR, DECODER_STREAM_ERROR = 0x200, 0x201, 0x202


class Line(QuicConnectionProtocol):
    """A connection. `cooked` ones speak HTTP/3 by the library, the others what a case writes."""

    def __init__(self, *args, cooked=True, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic) if cooked else None
        self.answers, self.raw, self.stops, self.resets = {}, {}, {}, {}
        self.ended = self.handshake = None
        self.news = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.ended = event
        elif isinstance(event, HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, StopSendingReceived):
            self.stops[event.stream_id] = event.error_code
        elif isinstance(event, StreamDataReceived):
            data, _ = self.raw.get(event.stream_id, (b"", False))
            self.raw[event.stream_id] = (data + event.data, event.end_stream)
        for told in self.http.handle_event(event) if self.http else []:
            answer = self.answers.setdefault(told.stream_id, Answer()) if hasattr(told, "stream_id") else None
            if isinstance(told, HeadersReceived):
                answer.heads.append(dict(told.headers))
                answer.whole = told.stream_ended
            elif isinstance(told, DataReceived):
                answer.body += told.data
                answer.whole = told.stream_ended
        self.news.set()

    async def until(self, what, holds):
        """Waits until something holds."""
        async def loop():
            while not holds():
                self.news.clear()
                await self.news.wait()
        try:
            await asyncio.wait_for(loop(), PATIENCE)
        except asyncio.TimeoutError:
            raise AssertionError(f"waited in vain: {what}; the connection: {self.ended}") from None

    def ask(self, path, method="GET", body=None, trailers=None, more=()):
        stream = self._quic.get_next_available_stream_id()
        self.http.send_headers(stream, head(path, method) + list(more), end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=trailers is None)
        if trailers is not None:
            self.http.send_headers(stream, trailers, end_stream=True)
        self.transmit()
        return stream

    async def answer(self, stream):
        await self.until("an answer", lambda: self.answers.get(stream, Answer()).whole or stream in self.resets or self.ended)
        answer = self.answers.get(stream, Answer())
        assert answer.whole, f"reset {self.resets.get(stream)}, ended {self.ended}"
        return answer

    async def get(self, path, **more):
        return await self.answer(self.ask(path, **more))

    def write(self, stream, data, end=False):
        self._quic.send_stream_data(stream, data, end)
        self.transmit()

    def open_control(self, settings=b""):
        self.write(2, b"\0" + frame(SETTINGS, settings))


class Answer:
    def __init__(self):
        self.heads, self.body, self.whole = [], b"", False

    @property
    def status(self):
        return int(self.heads[-1][b":status"]) if self.heads else None


def head(path, method="GET"):
    fields = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path.encode())]
    return fields + ([(b"content-type", b"text/plain")] if method == "POST" else [])


def frame(kind, payload=b""):
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def block(fields):
    return pylsqpack.Encoder().encode(0, list(fields))[1]


def headers(fields):
    return frame(HEADERS, block(fields))


def configuration(**more):
    settings = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", **more)
    settings.load_verify_locations(AUTHORITY_FILE)
    return settings


def reach(cooked=True, settings=None, **more):
    make = lambda *args, **kwargs: Line(*args, cooked=cooked, **kwargs)
    return connect("127.0.0.1", PORT, configuration=settings or configuration(), create_protocol=make, **more)


# Conversations: each is a function whose words are its name.


async def a_small_answer(line):
    answer = await line.get("/get")
    assert answer.status == 200 and json.loads(answer.body)["url"], answer.heads


async def an_answer_to_head_has_no_body(line):
    answer = await line.get("/get", method="HEAD")
    assert answer.status == 200 and answer.body == b"", answer.heads


async def a_large_body_up(line):
    answer = await line.get("/post", method="POST", body=b"x" * 1_000_000)
    assert len(json.loads(answer.body)["data"]) == 1_000_000


async def a_large_body_down(line):
    assert len((await line.get("/bytes/3000000")).body) == 3_000_000


async def forty_requests_at_once(line):
    streams = [line.ask(f"/bytes/{5000 + number}") for number in range(40)]
    sizes = [len((await line.answer(stream)).body) for stream in streams]
    assert sizes == [5000 + number for number in range(40)], sizes


async def trailers_of_a_request(line):
    answer = await line.get("/post", method="POST", body=b"body", trailers=[(b"x-sum", b"1")])
    assert answer.status == 200 and json.loads(answer.body)["data"] == "body"


async def trailers_of_an_answer(line):
    answer = await line.get("/trailers?x-sum=1", more=[(b"te", b"trailers")])
    assert answer.heads[0][b":status"] == b"200" and answer.heads[-1].get(b"x-sum") == b"1", answer.heads


async def a_request_that_is_given_up_leaves_the_others(line):
    stream = line.ask("/drip?numbytes=1000&duration=30s")
    await line.until("a head", lambda: stream in line.answers)
    line._quic.stop_stream(stream, 0x10C)
    line.transmit()
    assert (await line.get("/get")).status == 200


async def half_a_request_that_is_given_up_leaves_the_others(line):
    stream = line._quic.get_next_available_stream_id()
    line.http.send_headers(stream, head("/post", "POST"))
    line.http.send_data(stream, b"half", end_stream=False)
    line._quic.reset_stream(stream, 0x10C)
    line.transmit()
    assert (await line.get("/get")).status == 200


async def new_keys(line):
    assert (await line.get("/get")).status == 200
    line.request_key_update()
    assert (await line.get("/get")).status == 200


async def another_connection_id(line):
    assert (await line.get("/get")).status == 200
    line.change_connection_id()
    assert (await line.get("/get")).status == 200


async def a_ping(line):
    await asyncio.wait_for(line.ping(), PATIENCE)


async def an_unknown_stream_is_ignored(line):
    """RFC 9114 section 6.2.3"""
    line.write(line._quic.get_next_available_stream_id(is_unidirectional=True), encode_uint_var(0x21) + b"what is this?")
    assert (await line.get("/get")).status == 200


async def unknown_frames_are_ignored(line):
    """RFC 9114 section 7.2.8"""
    stream = line._quic.get_next_available_stream_id()
    line.write(stream, frame(0x21, b"before"))
    line.http.send_headers(stream, head("/post", "POST"))
    line.write(stream, frame(0x21, b"between"))
    line.http.send_data(stream, b"body", end_stream=False)
    line.write(stream, frame(0x40, b"after"), end=True)
    assert json.loads((await line.answer(stream)).body)["data"] == "body"


CONVERSATIONS = [
    a_small_answer,
    an_answer_to_head_has_no_body,
    a_large_body_up,
    a_large_body_down,
    forty_requests_at_once,
    trailers_of_a_request,
    trailers_of_an_answer,
    a_request_that_is_given_up_leaves_the_others,
    half_a_request_that_is_given_up_leaves_the_others,
    new_keys,
    another_connection_id,
    a_ping,
    an_unknown_stream_is_ignored,
    unknown_frames_are_ignored,
]


async def a_session_is_resumed():
    tickets = []
    async with reach(session_ticket_handler=tickets.append) as line:
        await line.get("/get")
        await line.until("a ticket", lambda: tickets)
    async with reach(settings=configuration(session_ticket=tickets[0])) as line:
        assert (await line.get("/get")).status == 200
        assert line.handshake.session_resumed


async def an_unknown_version_is_answered_with_those_that_are_known():
    """RFC 9000 section 6"""
    settings = configuration()
    settings.original_version = 0x1A2A3A4A
    settings.supported_versions = [0x1A2A3A4A] + settings.supported_versions
    async with reach(settings=settings) as line:
        assert (await line.get("/get")).status == 200


async def another_protocol_is_refused_in_the_handshake():
    """RFC 9001 section 8.1"""
    settings = configuration()
    settings.alpn_protocols = ["nothing"]
    try:
        async with reach(settings=settings) as line:
            raise AssertionError(f"it was taken: {line.handshake}")
    except ConnectionError:
        pass


ALONE = [
    a_session_is_resumed,
    an_unknown_version_is_answered_with_those_that_are_known,
    another_protocol_is_refused_in_the_handshake,
]

GET = headers(head("/get"))
# Rules that break the connection: name, section, what is written to which stream (`True` behind it: and its end), the error.
# Stream 0 is a request, 2 the control stream that was opened, 6 and 10 are others of one direction.
VIOLATIONS = [
    ("DATA before HEADERS", "RFC 9114 4.1", [(0, frame(DATA, b"x"))], FRAME_UNEXPECTED),
    ("DATA behind trailers", "RFC 9114 4.1", [(0, GET + headers([(b"x", b"1")]) + frame(DATA, b"x"))], FRAME_UNEXPECTED),
    ("DATA on the control stream", "RFC 9114 7.2.1", [(2, frame(DATA, b"x"))], FRAME_UNEXPECTED),
    ("HEADERS on the control stream", "RFC 9114 7.2.2", [(2, GET)], FRAME_UNEXPECTED),
    ("CANCEL_PUSH on a request", "RFC 9114 7.2.3", [(0, frame(CANCEL_PUSH, b"\0"))], FRAME_UNEXPECTED),
    ("CANCEL_PUSH of what was never promised", "RFC 9114 7.2.3", [(2, frame(CANCEL_PUSH, b"\0"))], ID_ERROR),
    ("another SETTINGS", "RFC 9114 7.2.4", [(2, frame(SETTINGS))], FRAME_UNEXPECTED),
    ("SETTINGS on a request", "RFC 9114 7.2.4", [(0, frame(SETTINGS))], FRAME_UNEXPECTED),
    ("PUSH_PROMISE on a request", "RFC 9114 7.2.5", [(0, frame(PUSH_PROMISE, b"\0" + block(head("/"))))], FRAME_UNEXPECTED),
    ("PUSH_PROMISE on the control stream", "RFC 9114 7.2.5", [(2, frame(PUSH_PROMISE, b"\0"))], FRAME_UNEXPECTED),
    ("GOAWAY on a request", "RFC 9114 7.2.6", [(0, frame(GOAWAY, b"\0"))], FRAME_UNEXPECTED),
    ("MAX_PUSH_ID on a request", "RFC 9114 7.2.7", [(0, frame(MAX_PUSH_ID, b"\0"))], FRAME_UNEXPECTED),
    ("MAX_PUSH_ID that shrinks", "RFC 9114 7.2.7", [(2, frame(MAX_PUSH_ID, b"\5") + frame(MAX_PUSH_ID, b"\4"))], ID_ERROR),
    ("a frame of HTTP/2", "RFC 9114 7.2.8", [(2, frame(2, b"\0\0\0\0\0"))], FRAME_UNEXPECTED),
    ("a frame of HTTP/2 on a request", "RFC 9114 7.2.8", [(0, frame(9, b"x"))], FRAME_UNEXPECTED),
    ("a frame that is cut off", "RFC 9114 7.1", [(0, GET + b"\0\5ab", True)], FRAME_ERROR),
    ("a frame with more than its fields", "RFC 9114 7.1", [(2, frame(MAX_PUSH_ID, b"\1\2"))], FRAME_ERROR),
    ("two control streams", "RFC 9114 6.2.1", [(6, b"\0" + frame(SETTINGS))], STREAM_CREATION_ERROR),
    ("a control stream that ends", "RFC 9114 6.2.1", [(2, b"", True)], CLOSED_CRITICAL_STREAM),
    ("a push stream", "RFC 9114 6.2.2", [(6, b"\1\0")], STREAM_CREATION_ERROR),
    ("two encoder streams", "RFC 9204 4.2", [(6, b"\2"), (10, b"\2")], STREAM_CREATION_ERROR),
    ("an encoder stream that ends", "RFC 9204 4.2", [(6, b"\2"), (6, b"", True)], CLOSED_CRITICAL_STREAM),
    ("a decoder stream that ends", "RFC 9204 4.2", [(6, b"\3"), (6, b"", True)], CLOSED_CRITICAL_STREAM),
    ("a dynamic table that is too large", "RFC 9204 4.3.1", [(6, b"\2\x3f\xff\xff\xff\x7f")], ENCODER_STREAM_ERROR),
    ("an entry that has no room", "RFC 9204 3.2.2", [(6, b"\2\x41a\1b")], ENCODER_STREAM_ERROR),
    ("an increment of nothing", "RFC 9204 4.4.3", [(6, b"\3\0")], DECODER_STREAM_ERROR),
    ("a field that no table has", "RFC 9204 3.1", [(0, frame(HEADERS, b"\0\0\xff\x40"), True)], DECOMPRESSION_FAILED),
    ("a field of an empty dynamic table", "RFC 9204 2.2.3", [(0, frame(HEADERS, b"\2\0\x80"), True)], DECOMPRESSION_FAILED),
]
# The same, before SETTINGS were sent: what the control stream begins with.
BEGINNINGS = [
    ("no SETTINGS first", "RFC 9114 6.2.1", frame(MAX_PUSH_ID, b"\0"), MISSING_SETTINGS),
    ("a setting of HTTP/2", "RFC 9114 7.2.4.1", frame(SETTINGS, b"\2\0"), SETTINGS_ERROR),
    ("SETTINGS that are cut off", "RFC 9114 7.1", frame(SETTINGS, b"\6"), FRAME_ERROR),
]


def without(name):
    """A request's fields but this one."""
    return [field for field in head("/get") if field[0] != name]


POST = head("/post", "POST")
# Malformed requests (RFC 9114 section 4.1.2): name, section, what is written to a request.
MALFORMED = [
    ("a name in large letters", "4.2", headers(head("/get") + [(b"X-Large", b"1")])),
    ("a field of the connection", "4.2", headers(head("/get") + [(b"connection", b"close")])),
    ("transfer-encoding", "4.2", headers(head("/get") + [(b"transfer-encoding", b"chunked")])),
    ("te other than trailers", "4.2", headers(head("/get") + [(b"te", b"gzip")])),
    ("a value with a line break", "4.2", headers(head("/get") + [(b"x", b"a\r\nb: c")])),
    # A literal without a name (RFC 9204 section 4.5.6), which the library would not write.
    ("an empty name", "4.2", frame(HEADERS, block(head("/get")) + b"\x20\x01x")),
    ("an unknown pseudo field", "4.3", headers(head("/get") + [(b":what", b"1")])),
    ("a pseudo field of answers", "4.3", headers(head("/get") + [(b":status", b"200")])),
    ("a pseudo field behind others", "4.3", headers([(b"x", b"1")] + head("/get"))),
    ("a pseudo field in trailers", "4.3", headers(POST) + headers([(b":path", b"/")])),
    ("a pseudo field twice", "4.3.1", headers(head("/get") + [(b":path", b"/other")])),
    ("no method", "4.3.1", headers(without(b":method"))),
    ("no scheme", "4.3.1", headers(without(b":scheme"))),
    ("no path", "4.3.1", headers(without(b":path"))),
    ("an empty path", "4.3.1", headers(without(b":path") + [(b":path", b"")])),
    ("neither authority nor host", "4.3.1", headers(without(b":authority"))),
    ("authority and host that differ", "4.3.1", headers(head("/get") + [(b"host", b"elsewhere")])),
    ("more than content-length", "4.1.2", headers(POST + [(b"content-length", b"2")]) + frame(DATA, b"abc")),
    ("less than content-length", "4.1.2", headers(POST + [(b"content-length", b"5")]) + frame(DATA, b"abc")),
]


async def violate(writes, wanted, begin=True):
    async with reach(cooked=False) as line:
        if begin:
            line.open_control()
        for stream, data, *end in writes:
            line.write(stream, data, bool(end))
        await line.until("the end of the connection", lambda: line.ended)
        code = line.ended.error_code
        assert code == wanted, f"{code:#x} {line.ended.reason_phrase!r} instead of {wanted:#x}"


async def malform(data):
    async with reach(cooked=False) as line:
        line.open_control()
        line.write(0, data, True)
        over = lambda: line.raw.get(0, (b"", False))[1] or 0 in line.resets or line.ended
        await line.until("an end of the stream", over)
        if line.ended:
            raise AssertionError(f"the connection ended with {line.ended.error_code:#x}")
        reset, status = line.resets.get(0), status_of(line.raw.get(0, (b"",))[0])
        assert reset == MESSAGE_ERROR or status == 400, f"reset {reset}, status {status}"


def status_of(data):
    """The status of a response, read frame by frame."""
    buffer = Buffer(data=data)
    while not buffer.eof():
        kind, size = buffer.pull_uint_var(), buffer.pull_uint_var()
        payload = buffer.pull_bytes(size)
        if kind == HEADERS:
            fields = dict(pylsqpack.Decoder(0, 0).feed_header(0, payload)[1])
            return int(fields[b":status"])
    return None


async def tell(name, work):
    try:
        await asyncio.wait_for(work, 3 * PATIENCE)
        print("passed", name, "", sep="\t", flush=True)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        print("failed", name, why, sep="\t", flush=True)


async def converse(talk):
    async with reach() as line:
        await talk(line)


def named(function):
    section = f" ({inspect.getdoc(function)})" if inspect.getdoc(function) else ""
    return function.__name__.replace("_", " ") + section


async def main():
    for talk in CONVERSATIONS:
        await tell(named(talk), converse(talk))
    for talk in ALONE:
        await tell(named(talk), talk())
    for name, section, writes, wanted in VIOLATIONS:
        await tell(f"{name} ({section})", violate(writes, wanted))
    for name, section, data, wanted in BEGINNINGS:
        await tell(f"{name} ({section})", violate([(2, b"\0" + data)], wanted, begin=False))
    for name, section, data in MALFORMED:
        await tell(f"{name} (RFC 9114 {section})", malform(data))


asyncio.run(main())
