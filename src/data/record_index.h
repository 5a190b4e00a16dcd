// Where the records of TFRecord files lie. The index has a limited size: of a large data set it knows every k-th
// record, and the records between are found from there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/tfrecord/records.h"

namespace plimsoll::engine {

class RecordIndex {
 public:
  // Reads the heads of all records. Without `skip`, fails with P401 at a damaged one. With it, checks every record and
  // leaves out damaged ones; dropped() counts them.
  static Result<RecordIndex> build(const std::vector<std::string>& paths, bool skip);

  struct Found {
    const File* file;
    RecordPlace place;
  };
  // `buffer` is memory for reading heads.
  Result<Found> find(int64_t record, std::span<std::byte> buffer) const;

  int64_t records() const { return shards_.empty() ? 0 : shards_.back().end; }
  int64_t longest() const { return longest_; }  // bytes of the longest record
  int64_t dropped() const { return dropped_; }
  Bytes bytes() const;  // memory that it holds
  std::string digest() const;
  // Keeps the records for which `keeps` is true, which must have one entry per record. Needs an index of every record.
  void keep(const std::vector<bool>& keeps);
  bool knows_every_record() const { return stride_ == 1; }

 private:
  struct Shard {
    std::unique_ptr<File> file;
    int64_t begin = 0, end = 0;       // its records
    std::vector<uint64_t> positions;  // of the heads of its records 0, k, 2k, ...
  };

  Status add(const std::string& path, bool skip);
  void thin_out();

  std::vector<Shard> shards_;
  int64_t stride_ = 1, longest_ = 0, dropped_ = 0;
  size_t entries_ = 0;
};

}  // namespace plimsoll::engine
