"""Philox 4x32-10 and Plimsoll's dropout masks as defined in docs/internals/ops.md, implemented independently in numpy."""

import numpy as np

M0, M1, W0, W1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57), 0x9E3779B9, 0xBB67AE85
LOW, SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(key, counter):
    """key: a 64-bit integer; counter: four arrays of the same shape -> four arrays of 32-bit words (as uint64)."""
    c = [np.asarray(word, np.uint64) & LOW for word in np.broadcast_arrays(*counter)]
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = M0 * c[0], M1 * c[2]
        c = [(p1 >> SHIFT) ^ c[1] ^ np.uint64(k0), p1 & LOW, (p0 >> SHIFT) ^ c[3] ^ np.uint64(k1), p0 & LOW]
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return c


def units(seed, step, call, batch, elements, first=0):
    """[batch, elements] float32 in [0, 1): the numbers of op random_uniform, and those that dropout compares with its rate."""
    e = np.arange(elements, dtype=np.uint64)[None, :]
    s = np.arange(first, first + batch, dtype=np.uint64)[:, None]
    words = philox(seed, (e // np.uint64(4), s, np.uint64(call), np.uint64(step)))
    lane = (e % np.uint64(4)).astype(int)
    word = np.choose(np.broadcast_to(lane, (batch, elements)), words)
    return (word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def normals(seed, step, call, batch, sample_shape, first=0):
    """The numbers of op random_normal: Box and Muller's transform of neighbouring pairs of units."""
    elements = int(np.prod(sample_shape))
    u = units(seed, step, call, batch, -(-elements // 2) * 2, first).astype(np.float64)
    radius, angle = np.sqrt(-2 * np.log(u[:, 0::2] + 2.0**-24)), 2 * np.pi * u[:, 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(batch, -1)
    return pairs[:, :elements].reshape((batch,) + tuple(sample_shape)).astype(np.float32)


def mask(seed, step, call, batch, sample_shape, rate, first=0):
    """The factors of dropout, 0 or 1/(1-rate), for the samples from `first` on in the effective batch of one optimizer step."""
    kept = units(seed, step, call, batch, int(np.prod(sample_shape)), first) >= np.float32(rate)
    return (kept * np.float32(1.0 / (1.0 - rate))).astype(np.float32).reshape((batch,) + tuple(sample_shape))


def self_test():
    """Known answers of the Random123 distribution (kat_vectors: philox4x32 10)."""
    for counter, key, want in (
        ([0] * 4, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, 0xFFFFFFFFFFFFFFFF, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ):
        assert [int(w) for w in philox(key, counter)] == want


if __name__ == "__main__":
    self_test()
