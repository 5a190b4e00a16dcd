// All limits on what a file may contain before it is rejected. docs/limits.md explains them.
//
// Rejecting a file costs at most reading it up to the limit. Every limit is far above what Keras writes for the largest
// models it ships.
#pragma once

#include "base/bytes.h"

namespace plimsoll::engine::limits {

// JSON: config.json, metadata.json, a bare architecture, a saved plan, a checkpoint's header. NASNetLarge has the
// longest text of all models in keras.applications: 1.0 MiB with 105,000 values, which count as 10 MiB of memory.
inline constexpr Bytes kConfigBytes = 16 * kMiB;  // config.json, metadata.json or an architecture
inline constexpr Bytes kJsonBytes = 64 * kMiB;    // any JSON text
inline constexpr int kJsonDepth = 512;
inline constexpr Bytes kJsonMemory = 64 * kMiB;  // memory of the parsed values

// Zip archives.
inline constexpr Bytes kZipDirectoryBytes = 64 * kMiB;
inline constexpr int64_t kZipEntries = 100'000;

// HDF5.
inline constexpr int kHdf5Depth = 64;             // nesting of groups
inline constexpr int64_t kHdf5Objects = 200'000;  // groups and datasets together
inline constexpr int kHdf5Rank = 32;
inline constexpr Bytes kHdf5NameBytes = 1 * kKiB;        // name of one member of a group
inline constexpr Bytes kHdf5PathBytes = 32 * kMiB;       // paths of all objects together
inline constexpr Bytes kHdf5HeaderBytes = 1 * kMiB;      // one object header
inline constexpr int64_t kHdf5Messages = 10'000;         // in one object header
inline constexpr Bytes kHdf5CopiedTypeBytes = 8 * kKiB;  // datatype message of a dataset that is copied
inline constexpr Bytes kHdf5HeapBytes = 1 * kMiB;        // one global heap
inline constexpr int64_t kHdf5Texts = 200'000;           // texts in one attribute
inline constexpr Bytes kHdf5TextBytes = 16 * kMiB;       // all texts of one attribute
inline constexpr Bytes kHdf5BlockBytes = 16 * kMiB;      // any single structure
// All structures that are read; also limited to 8 times the file.
inline constexpr Bytes kHdf5MetadataBytes = 256 * kMiB;
inline constexpr int64_t kHdf5Blocks = 1'000'000;   // number of structures that are read
inline constexpr Bytes kHdf5ChunkBytes = 4 * kMiB;  // one uncompressed chunk; two are held at a time

// SavedModel and the checkpoints of TensorFlow.
inline constexpr Bytes kTableBytes = 64 * kMiB;        // the index of a checkpoint
inline constexpr int64_t kTableEntries = 200'000;      // tensors and blocks
inline constexpr Bytes kTableKeyBytes = 64 * kKiB;     // the name of a tensor
inline constexpr int64_t kBundleShards = 1'024;        // data files
inline constexpr Bytes kObjectGraphBytes = 64 * kMiB;  // the graph of objects
inline constexpr int64_t kGraphObjects = 200'000;      // its objects
inline constexpr int64_t kMetadataNodes = 200'000;     // nodes in keras_metadata.pb

// Pictures: 16,384 x 16,384. A few kilobytes can promise more.
inline constexpr int64_t kImagePixels = int64_t{1} << 28;
inline constexpr int kImageFolderDepth = 64;  // nesting of folders in the folder of a class

// Strings: one text, which is held whole.
inline constexpr Bytes kTextBytes = 256 * kMiB;

// TFRecord: one record, which is held whole; and the features of the first record.
inline constexpr Bytes kRecordBytes = 256 * kMiB;
inline constexpr int64_t kRecordFeatures = 10'000;

// CSV: one line with its quoted parts, and its columns.
inline constexpr Bytes kCsvLineBytes = 16 * kMiB;
inline constexpr int64_t kCsvColumns = 100'000;

// The limit on decompressed weights. It applies to small files too: zeros compress well, but trained weights do not.
inline constexpr int64_t kUnpackedRatio = 100;
inline constexpr Bytes kUnpackedBytes = 64 * kMiB;

}  // namespace plimsoll::engine::limits
