# SPDX-License-Identifier: Apache-2.0
"""Sizes of general codecs on BF16 values, as far as they are installed. Their speeds are measured by bench/scripts/cpu_peers.py."""


def zstd():
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress, zstandard.ZstdDecompressor().decompress


def lz4():
    import lz4.block

    return lz4.block.compress, lz4.block.decompress


def shuffled():
    import blosc2

    options = {"codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE], "filters_meta": [0]}
    return lambda data: blosc2.compress2(data, typesize=2, nthreads=1, **options), blosc2.decompress2


def zipnn():
    import zipnn

    codec = zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
    return lambda data: codec.compress(bytearray(data)), codec.decompress  # it overwrites what it is given


CODECS = {"zstd -3": zstd, "lz4": lz4, "byte shuffle + zstd -1 (Blosc2)": shuffled, "ZipNN": zipnn}


def installed():
    """Compress and decompress by name, and the names of what is missing."""
    found, missing = {}, []
    for name, make in CODECS.items():
        try:
            found[name] = make()
        except ImportError:
            missing.append(name)
    return found, missing


def ratio(codec, data):
    compress, decompress = codec
    packed = compress(data)
    if bytes(decompress(packed)) != data:
        raise SystemExit("a codec gave other bytes back than it got")
    return len(data) / len(packed)
