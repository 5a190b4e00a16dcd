// A source of rows that are made from records: pictures that are decoded, records that are parsed.
//
// It is a stage of the input pipeline. Its position is the number of the next record, which its reader keeps; it can
// seek to any record, so any order and resuming are the reader's business. Its memory is counted by bytes() when it is
// opened, and does not grow afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace plimsoll::engine {

class RowSource {
 public:
  virtual ~RowSource() = default;

  // Memory that it holds while it reads: its index, its buffers, and what libraries allocate for it at most.
  virtual Bytes bytes() const = 0;
  // Writes a field of a record into the caller's memory. Several threads may call it; it may let them wait.
  virtual Status read(size_t field, int64_t record, void* into) = 0;
  // Identifies the contents of a field without reading all of it.
  virtual Result<std::string> digest(size_t field) = 0;
};

// A source of strings: columns of an array, files of text, features of records. Like a RowSource, it is read by
// position, and its memory does not grow. Several threads may read at once.
class StringSource {
 public:
  virtual ~StringSource() = default;

  virtual Bytes bytes() const = 0;    // memory that it holds
  virtual Bytes longest() const = 0;  // no string has more bytes
  // Replaces `into` by a string of a record, in UTF-8 or as the bytes are. `into` has room for the longest.
  virtual Status read(size_t field, int64_t record, int64_t number, std::string& into) = 0;
  virtual Result<std::string> digest(size_t field) = 0;  // as RowSource
};

}  // namespace plimsoll::engine
