// Opens a SavedModel folder. The input holds its files one after the other: keras_metadata.pb and variables.index, each
// preceded by its size in four bytes, and then the data file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "formats/keras/archive.h"
#include "formats/saved_model/object_graph.h"
#include "formats/saved_model/saved_model.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr Bytes kLargestRead = kMiB;

Input take_part(Input& input) {
  uint32_t size = 0;
  if (input.size() < sizeof(size)) return {};
  std::memcpy(&size, input.data(), sizeof(size));
  input = input.subspan(sizeof(size));
  const Input part = input.first(std::min<size_t>(size, input.size()));
  input = input.subspan(part.size());
  return part;
}

void write_file(const std::string& path, Input bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    found("the input cannot be written to " + path);
  ::close(file);
}

void read_tensors(const TensorBundle& bundle) {
  Bytes left = 4 * kLargestRead;
  for (const auto& entry : bundle.entries()) {
    if (entry.text) {
      const auto text = bundle.read_text(entry.name);
      check_error(text);
      if (text) check_error(ObjectGraph::parse(*text, "fuzzed"));
    }
    const Bytes bytes = entry.type.bytes();
    if (bytes > std::min(kLargestRead, left)) continue;
    left -= bytes;
    // The exact size, so that a write past the end is detected.
    std::vector<std::byte> buffer(static_cast<size_t>(bytes));
    check_error(bundle.read_into(entry.name, entry.type, buffer.data()));
  }
}

void run(Input input) {
  const std::string folder = scratch_folder() + "/model";
  ::mkdir(folder.c_str(), 0700);
  ::mkdir((folder + "/variables").c_str(), 0700);
  const Input metadata = take_part(input), index = take_part(input);
  write_file(folder + "/keras_metadata.pb", metadata);
  write_file(folder + "/variables/variables.index", index);
  write_file(folder + "/variables/variables.data-00000-of-00001", input);
  check_error(parse_metadata(std::as_bytes(metadata), "fuzzed"));
  if (const auto bundle = TensorBundle::open(folder + "/variables/variables")) read_tensors(*bundle);
  check_error(open_keras(folder));
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
