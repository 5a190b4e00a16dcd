// TFRecord: the input is a file of records, a gzipped one, and one tf.train.Example without framing, because a mutated
// record hardly ever has the right checksum.
#include "formats/tfrecord/records.h"

#include <vector>

#include "formats/file/gzip.h"
#include "formats/tfrecord/example.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

void read_example(std::span<const std::byte> record) {
  ExampleReader reader(record);
  while (const auto feature = reader.next()) {
    const auto count = feature->count();
    if (!count || *count > (1 << 20)) continue;
    std::vector<float> floats(static_cast<size_t>(*count));
    std::vector<int64_t> integers(floats.size());
    if (feature->kind == FeatureKind::kFloats && !feature->read_floats(floats)) found("floats that cannot be read");
    if (feature->kind == FeatureKind::kIntegers && !feature->read_integers(integers))
      found("integers that cannot be read");
    if (const auto bytes = feature->only_bytes(); bytes && !bytes->empty())
      if (bytes->data() < record.data() || bytes->data() + bytes->size() > record.data() + record.size())
        found("bytes outside the record");
  }
}

void read_file(const File& file) {
  std::vector<std::byte> buffer(64), record;
  RecordHeads heads(file, buffer);
  for (int64_t position = 0;;) {
    const auto place = heads.at(position);
    check_error(place);
    if (!place) {
      const auto next = heads.search(position + 1);
      check_error(next);
      if (!next || *next <= position) return;
      position = *next;
      continue;
    }
    if (!*place) return;
    record.resize(static_cast<size_t>((*place)->bytes + kRecordTail));
    const Status read = read_record(file, **place, record);
    check_error(read);
    if (read) read_example(std::span(record).first(static_cast<size_t>((*place)->bytes)));
    position = (*place)->next();
  }
}

void run(Input input) {
  read_example(std::as_bytes(input));
  const InputFile path(input);
  const auto file = File::open_read(path.path());
  if (!file) found(to_text(file.error()));
  read_file(*file);
  check_error(gunzip(*file, kMiB, [](std::span<const std::byte>) { return Status(); }));
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
