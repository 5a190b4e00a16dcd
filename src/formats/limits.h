// How much a file may ask of us before it is refused: the one place where these limits stand. docs/limits.md explains
// them.
//
// A file that is refused costs no more than reading it up to the limit. Every limit lies far above what Keras writes
// for the largest models it ships.
#pragma once

#include "base/bytes.h"

namespace plimsoll::engine::limits {

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
inline constexpr int kHdf5Depth = 64;             // of groups within groups
inline constexpr int64_t kHdf5Objects = 200'000;  // groups and datasets
inline constexpr int kHdf5Rank = 32;
inline constexpr Bytes kHdf5NameBytes = 1 * kKiB;        // of one member of a group
inline constexpr Bytes kHdf5PathBytes = 32 * kMiB;       // of the paths of all objects together
inline constexpr Bytes kHdf5HeaderBytes = 1 * kMiB;      // of one object header
inline constexpr int64_t kHdf5Messages = 10'000;         // of one object header
inline constexpr Bytes kHdf5CopiedTypeBytes = 8 * kKiB;  // of the type of a dataset that is copied
inline constexpr Bytes kHdf5HeapBytes = 1 * kMiB;        // of one global heap
inline constexpr Bytes kHdf5BlockBytes = 16 * kMiB;      // of any one structure
inline constexpr Bytes kHdf5MetadataBytes = 256 * kMiB;  // of all structures that are read; also 8 times the file
inline constexpr int64_t kHdf5Blocks = 1'000'000;        // structures that are read
inline constexpr Bytes kHdf5ChunkBytes = 4 * kMiB;       // of one chunk, unpacked; two are held

// What may come out of compressed weights, also when the file is small: a model's zeros pack well, its weights do not.
inline constexpr int64_t kUnpackedRatio = 100;
inline constexpr Bytes kUnpackedBytes = 64 * kMiB;

}  // namespace plimsoll::engine::limits
