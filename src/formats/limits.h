// How much a file may ask of us before it is refused: the one place where these limits stand. docs/limits.md explains
// them.
//
// A file that is refused costs no more than reading it up to the limit. Every limit lies far above what Keras writes
// for the largest models it ships.
#pragma once

#include "base/bytes.h"

namespace plimsoll::limits {

// JSON: config.json, metadata.json, a bare architecture, a saved plan, a checkpoint's header. NASNetLarge, the largest
// model of keras.applications by its text, has 1.0 MiB, 105,000 values and counts as 10 MiB of memory.
inline constexpr Bytes kConfigBytes = 16 * kMiB;  // of config.json, metadata.json and an architecture
inline constexpr Bytes kJsonBytes = 64 * kMiB;    // of any JSON
inline constexpr int kJsonDepth = 512;
inline constexpr Bytes kJsonMemory = 64 * kMiB;  // that the parsed values take

// Zip archives.
inline constexpr Bytes kZipDirectoryBytes = 64 * kMiB;
inline constexpr int64_t kZipEntries = 100'000;

// HDF5.
inline constexpr int kHdf5Depth = 64;                    // of groups within groups
inline constexpr int64_t kHdf5Objects = 200'000;         // groups and datasets
inline constexpr int64_t kHdf5Attributes = 1'000;        // of one object
inline constexpr Bytes kHdf5AttributeBytes = 64 * kKiB;  // of one attribute's value
inline constexpr Bytes kHdf5NameBytes = 4 * kKiB;
inline constexpr Bytes kHdf5ChunkBytes = 16 * kMiB;  // of one chunk, unpacked
inline constexpr int kHdf5Rank = 32;

}  // namespace plimsoll::limits
