#include "backends/cuda/driver/engine_choices.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <sstream>

#include "formats/file/cache.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr const char* kEntry = "gpu-engines.txt";  // file name in the cache folder
constexpr const char* kHeading = "plimsoll engine choices 1";
constexpr size_t kLongestLine = 4096, kMostLines = 100000;

using Lines = std::map<std::string, std::string>;

Lines read_lines() {
  Lines lines;
  std::istringstream file(read_cache_entry(kEntry).value_or(""));
  std::string line;
  if (!std::getline(file, line) || line != kHeading) return {};
  while (lines.size() < kMostLines && std::getline(file, line)) {
    const auto tab = line.find('\t');
    if (file.eof() || line.size() > kLongestLine || tab == std::string::npos)
      continue;  // truncated, or not written by us
    lines[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return lines;
}

void write_lines(const Lines& lines) {
  std::string text = std::string(kHeading) + "\n";
  for (const auto& [key, choice] : lines) text += fmt::format("{}\t{}\n", key, choice);
  write_cache_entry(kEntry, text);
}

class Choices {
 public:
  Choices() : lines_(read_lines()) {}
  ~Choices() { save(); }

  std::optional<std::string> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = lines_.find(key);
    return found == lines_.end() ? std::nullopt : std::optional(found->second);
  }
  void remember(const std::string& key, const std::string& choice) {
    const std::lock_guard lock(mutex_);
    lines_[key] = new_[key] = choice;
  }
  void save() {
    const std::lock_guard lock(mutex_);
    if (new_.empty()) return;
    Lines all = read_lines();
    for (const auto& [key, choice] : new_) all[key] = choice;
    write_lines(all);
    new_.clear();
  }

 private:
  std::mutex mutex_;
  Lines lines_, new_;
};

Choices& choices() {
  static Choices all;
  return all;
}

}  // namespace

std::optional<std::string> remembered_choice(const std::string& key) {
  return choices().find(key);
}

void remember_choice(const std::string& key, const std::string& choice) {
  if (key.find_first_of("\t\n") != std::string::npos || choice.find_first_of("\t\n") != std::string::npos) return;
  choices().remember(key, choice);
}

void save_choices() {
  choices().save();
}

}  // namespace plimsoll::engine::cuda
