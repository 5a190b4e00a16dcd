// A folder of pictures or of texts in one folder per class, listed as keras.utils.image_dataset_from_directory and
// text_dataset_from_directory list it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

// The paths of files, one after the other in one text.
class PathList {
 public:
  void add(std::string_view path);
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const;
  Bytes bytes() const;  // memory that it holds
  void shrink();        // gives back memory that is reserved for more

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
};

struct ClassFolder {
  std::string path;
  std::vector<std::string> classes;  // sorted names of the folders in it
  PathList files;                    // relative to `path`: class by class, each in the order of its paths
  std::vector<int32_t> labels;       // one per file: index of its class; empty without labels
};

// Lists all files whose names end in .bmp, .gif, .jpeg, .jpg or .png, in any case. Folders whose names begin with a dot
// are no classes; symbolic links to folders are followed at the first level alone. Without `labelled`, a folder without
// class folders is listed too. Fails with P401 if there is no picture.
Result<ClassFolder> list_images(const std::string& path, bool labelled);
// The same for files whose names end in .txt.
Result<ClassFolder> list_texts(const std::string& path, bool labelled);

}  // namespace plimsoll::engine
