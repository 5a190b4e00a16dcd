// A source of rows that are made from records: pictures that are decoded, records that are parsed.
//
// It is a stage of the input pipeline. Its position is the number of the next record, which its reader keeps; it can
// seek to any record, so any order and resuming are the reader's business. Its memory is counted by bytes() when it is
// opened, and does not grow afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace plimsoll::engine {

// What is known about decoding a field before any of it is decoded.
struct Decoding {
  std::string work;            // in messages: "JPEG decode"
  double seconds = 0;          // per record, on one thread: an estimate from the sizes in the headers
  bool whole_numbers = false;  // every element of every row is a whole number from 0 to 255
};

// What reading took so far, counted by the source itself, over all threads.
struct RowTimes {
  double seconds = 0;       // in read(), without what came from a cache
  double file_seconds = 0;  // of these, waiting for the file
  int64_t records = 0;
  double cached_seconds = 0;  // what came from a cache
  int64_t cached = 0;

  void add(const RowTimes& other);
};

// Adds a record, and the time from its construction to its destruction.
class ReadClock {
 public:
  explicit ReadClock(RowTimes& times);
  ~ReadClock();
  ReadClock(const ReadClock&) = delete;
  ReadClock& operator=(const ReadClock&) = delete;

 private:
  RowTimes& times_;
  double start_;
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  // Memory that it holds while it reads: its index, its buffers, and what libraries allocate for it at most.
  virtual Bytes bytes() const = 0;
  // Writes a field of a record into the caller's memory. Several threads may call it; it may let them wait.
  virtual Status read(size_t field, int64_t record, void* into) = 0;
  // Set if a field is decoded, so that keeping its rows saves work.
  virtual std::optional<Decoding> decoding(size_t /*field*/) const { return std::nullopt; }
  // How many threads can read at the same time without waiting for each other.
  virtual int readers() const { return 1; }
  virtual RowTimes times() const { return {}; }
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
