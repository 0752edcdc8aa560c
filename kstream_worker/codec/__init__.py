"""Bytes to columns, and columns to bytes: payload formats, fields bound by path, and the encoders of outputs."""

from kstream_worker.codec.binding import Binding, Side
from kstream_worker.codec.columns import ColumnDecoder
from kstream_worker.codec.json import json_decoder
from kstream_worker.codec.msgpack import msgpack_decoder

DECODERS = {"json": json_decoder, "msgpack": msgpack_decoder}

__all__ = ["DECODERS", "Binding", "ColumnDecoder", "Side", "json_decoder", "msgpack_decoder"]
