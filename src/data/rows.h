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

}  // namespace plimsoll::engine
