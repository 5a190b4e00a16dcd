#include "data/npz_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {
namespace {

bool has(const std::vector<std::string>& there, const std::string& name) {
  return std::find(there.begin(), there.end(), name) != there.end();
}

// Returns the text after "x_" in the names of a split, best first. A file with training arrays only may be used for
// evaluation.
std::vector<std::string> endings(Split split) {
  switch (split) {
    case Split::kTrain:
      return {"train"};
    case Split::kValidation:
      return {"val", "valid", "validation", "test", "train"};
    case Split::kTest:
      break;
  }
  return {"test", "val", "valid", "validation", "train"};
}

std::vector<ArrayNames> split_namings(Split split) {
  std::vector<ArrayNames> names;
  for (const std::string& end : endings(split)) {
    std::vector<std::string> weights{"sample_weight_" + end};
    if (split == Split::kTrain) weights.push_back("sample_weight");
    for (const char* x : {"x_", "X_"})
      for (const char* y : {"y_", "Y_"}) names.push_back({x + end, y + end, weights});
    names.push_back({end + "_images", end + "_labels", weights});
    names.push_back({end + "_x", end + "_y", weights});
  }
  return names;
}

const std::vector<ArrayNames>& other_namings() {
  static const std::vector<ArrayNames> names = {{"X", "Y", {"sample_weight"}},
                                                {"X", "y", {"sample_weight"}},
                                                {"images", "labels", {"sample_weight"}},
                                                {"arr_0", "arr_1", {"arr_2"}}};
  return names;
}

bool is_there(const ArrayNames& names, const std::vector<std::string>& there, bool needs_y) {
  // np.savez(file, x_train, y_train, x_test, y_test): the third array is not a sample weight.
  if (names.x == "arr_0" && has(there, "arr_3")) return false;
  return has(there, names.x) && (!needs_y || has(there, names.y));
}

}  // namespace

Result<std::optional<ArrayNames>> find_naming(const std::string& path, const std::vector<std::string>& there,
                                              Split split, bool needs_y) {
  const ArrayNames own{"x", "y", {"sample_weight"}};
  if (is_there(own, there, needs_y)) return own;
  for (const ArrayNames& names : split_namings(split))
    if (is_there(names, there, needs_y)) return names;
  std::optional<ArrayNames> found;
  for (const ArrayNames& names : other_namings()) {
    if (!is_there(names, there, needs_y) || (found && found->x == names.x)) continue;
    if (found)
      return fail(Error{ErrorCode::kBadDataFile,
                        fmt::format("{}: both '{}' and '{}' could be the inputs", path, found->x, names.x),
                        {fmt::format("it holds: {}", fmt::join(there, ", "))},
                        {"np.savez(file, x=inputs, y=targets)   only the arrays to use, under these names"}});
    found = names;
  }
  return found;
}

std::string known_namings(Split split, bool needs_y) {
  const std::string end = endings(split).front();
  if (!needs_y) return fmt::format("x, x_{}, X, images, or arr_0", end);
  return fmt::format("x and y, x_{0} and y_{0}, X and Y, images and labels, or arr_0 and arr_1", end);
}

}  // namespace plimsoll::engine
