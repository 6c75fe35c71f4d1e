"""The values of an object's blocks, decoded as a replica decodes what arrives."""

import numpy as np

from muster.replica.wire.binary_format import Floats, put_values
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.stream_decoder import ByteStream, decoded_stream


def decode_blocks(key: str, body: memoryview, blocks: Blocks, which: range) -> Floats:
    """The values of the blocks `which`, from exactly their records; raises CodecError."""
    offset, values = blocks.span(which).start, np.empty(blocks.span(which).stop - blocks.span(which).start, np.float32)
    for run, found in decoded_stream(key, ByteStream([body]), blocks, which):
        span = blocks.span(run)
        put_values(values[span.start - offset : span.stop - offset], found)
    return values
