#include "formats/image/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <span>

#include "formats/file/file.h"
#include "formats/limits.h"

namespace plimsoll::engine {

void PathList::add(std::string_view path) {
  text_ += path;
  ends_.push_back(text_.size());
}

std::string_view PathList::operator[](size_t i) const {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

Bytes PathList::bytes() const {
  return static_cast<Bytes>(text_.capacity() + ends_.capacity() * sizeof(uint64_t));
}

void PathList::shrink() {
  text_.shrink_to_fit();
  ends_.shrink_to_fit();
}

namespace {

bool entry_is_folder(const std::string& path, bool follow_link) {
  struct stat status {};
  const int failed = follow_link ? ::stat(path.c_str(), &status) : ::lstat(path.c_str(), &status);
  return failed == 0 && S_ISDIR(status.st_mode);
}

constexpr std::array<std::string_view, 5> kPictures = {".bmp", ".gif", ".jpeg", ".jpg", ".png"};
constexpr std::array<std::string_view, 1> kTexts = {".txt"};
using Endings = std::span<const std::string_view>;

bool ends_as(std::string_view name, Endings endings) {
  std::string lower(name.substr(name.size() - std::min<size_t>(name.size(), 5)));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return lower.ends_with(ending); });
}

std::vector<std::string> sorted_names(const std::string& folder) {
  auto names = names_in(folder);
  std::sort(names.begin(), names.end());
  return names;
}

// All folders below `path`, itself included, sorted by their paths relative to `root`.
Status add_folders(const std::string& root, const std::string& relative, int depth, std::vector<std::string>& folders) {
  if (depth > limits::kImageFolderDepth)
    return fail(ErrorCode::kBadDataFile,
                fmt::format("{}/{}: folders are nested more than {} deep", root, relative, limits::kImageFolderDepth));
  folders.push_back(relative);
  for (const auto& name : names_in(root + "/" + relative)) {
    const std::string inner = relative.empty() ? name : relative + "/" + name;
    if (entry_is_folder(root + "/" + inner, false)) PLIMSOLL_TRY(add_folders(root, inner, depth + 1, folders));
  }
  return {};
}

Status add_files(const std::string& root, const std::string& relative, Endings endings, PathList& files) {
  std::vector<std::string> folders;
  PLIMSOLL_TRY(add_folders(root, relative, 0, folders));
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders)
    for (const auto& name : sorted_names(root + "/" + folder)) {
      if (!ends_as(name, endings)) continue;
      const std::string path = folder.empty() ? name : folder + "/" + name;
      if (!entry_is_folder(root + "/" + path, true)) files.add(path);
    }
  return {};
}

// `what` is "pictures", `files` names the files that are listed.
Result<ClassFolder> list_files(const std::string& path, bool labelled, Endings endings, const char* what,
                               const char* files) {
  ClassFolder folder;
  folder.path = path;
  for (const auto& name : sorted_names(path))
    if (!name.starts_with('.') && entry_is_folder(path + "/" + name, true)) folder.classes.push_back(name);
  for (size_t i = 0; i < folder.classes.size(); ++i) {
    const size_t before = folder.files.size();
    PLIMSOLL_TRY(add_files(path, folder.classes[i], endings, folder.files));
    if (labelled) folder.labels.insert(folder.labels.end(), folder.files.size() - before, static_cast<int32_t>(i));
  }
  if (folder.classes.empty() && !labelled) PLIMSOLL_TRY(add_files(path, "", endings, folder.files));
  folder.files.shrink();
  folder.labels.shrink_to_fit();
  if (folder.files.size() > 0) return folder;
  Error error{ErrorCode::kBadDataFile, fmt::format("{}: a folder without {}", path, what), {}, {}};
  error.fact(labelled ? fmt::format("expected: one folder per class, with {} files in it", files)
                      : fmt::format("expected: {} files, or folders of them", files));
  if (folder.classes.empty() && labelled) error.fact("it has no folders for classes");
  return fail(std::move(error));
}

}  // namespace

Result<ClassFolder> list_images(const std::string& path, bool labelled) {
  return list_files(path, labelled, kPictures, "pictures", ".jpg, .jpeg, .png, .bmp or .gif");
}

Result<ClassFolder> list_texts(const std::string& path, bool labelled) {
  return list_files(path, labelled, kTexts, "texts", ".txt");
}

}  // namespace plimsoll::engine
