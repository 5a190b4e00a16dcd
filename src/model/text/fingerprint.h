// Hashes of byte strings that TensorFlow's string operations use: Keras's Hashing and StringLookup put strings into
// buckets with them, so the numbers must be the same.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace plimsoll::engine {

// FarmHash's Fingerprint64, which tf.strings.to_hash_bucket_fast uses.
uint64_t fingerprint64(std::string_view text);

// SipHash-2-4 with a key of 128 bits, which tf.strings.to_hash_bucket_strong uses.
uint64_t siphash(std::string_view text, const std::array<uint64_t, 2>& key);

}  // namespace plimsoll::engine
