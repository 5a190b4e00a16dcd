// Writes tf.train.Example records, as TensorFlow writes them: packed lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

// Builds one Example in a buffer that is used again for the next one.
class ExampleWriter {
 public:
  explicit ExampleWriter(std::vector<std::byte>& buffer) : buffer_(buffer) { buffer_.clear(); }

  void bytes(std::string_view name, std::span<const std::byte> value);
  void byte_strings(std::string_view name, std::span<const std::string_view> values);
  void floats(std::string_view name, int64_t count, const std::function<float(int64_t)>& element);
  void integers(std::string_view name, int64_t count, const std::function<int64_t(int64_t)>& element);
  // Returns the serialised Example.
  std::span<const std::byte> finish();

 private:
  void feature(std::string_view name, int list, std::span<const std::span<const std::byte>> values);

  std::vector<std::byte>& buffer_;
  std::vector<std::byte> values_, features_;
};

// Appends a record with its framing and checksums.
void append_record(std::vector<std::byte>& to, std::span<const std::byte> record);

}  // namespace plimsoll::engine
