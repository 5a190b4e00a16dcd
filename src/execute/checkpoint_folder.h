// The files of a checkpoint folder: the newest checkpoint, some older ones, the best weights, and the lock.
//
//   checkpoint.plimsoll          the newest
//   checkpoint-STEP.plimsoll     older ones, by the optimizer steps made until then
//   best-STEP.plimsoll           weights that early stopping may restore at the end
//   checkpoint.lock              while a run uses the folder
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/file/lock.h"

namespace plimsoll::engine {

// 1 and 2: with plans of older formats (plan/serialize.cpp)
inline constexpr const char* kCheckpointFormat = "plimsoll.checkpoint/3";

std::string checkpoint_path(const std::string& folder);  // of the newest
std::string older_checkpoint_path(const std::string& folder, int64_t step);
std::string best_weights_path(const std::string& folder, int64_t step);
// Steps of the files that are named after one, the largest first.
std::vector<int64_t> older_checkpoints(const std::string& folder);
bool holds_checkpoint(const std::string& folder);

// A checkpoint of this version's format; P212 for another.
Result<Checkpoint> open_stored(const std::string& path);

// Makes sure that the newest checkpoint is whole. If it is damaged and an older one is not, that one takes its place
// and the damaged one is renamed to damaged.plimsoll; returns what to tell the user, "" if nothing was to be done.
// P212, and nothing is changed, where none is whole. A folder without checkpoints is left as it is.
Result<std::string> settle_checkpoints(const std::string& folder);

// The right to write in a folder, which is made where it is missing; one that was made for nothing is removed again.
class FolderLock {
 public:
  // P214 if another run has it, P602 if the folder cannot be made.
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  bool locks() const { return locks_; }  // false where the file system has none

 private:
  FolderLock(LockFile lock, std::string folder, bool made)
      : locks_(lock.locks()), made_(made), folder_(std::move(folder)), lock_(std::move(lock)) {}
  bool locks_, made_;
  std::string folder_;
  std::optional<LockFile> lock_;
};

Status make_folder(const std::string& folder);

// The folder for one run alone. P214 if another run uses it, or if it holds a checkpoint and the run does not resume.
// With `resume` its newest checkpoint is whole afterwards. `note` is told what a user should know.
Result<FolderLock> take_checkpoint_folder(const std::string& folder, bool resume,
                                          const std::function<void(const std::string&)>& note);

// Puts new checkpoints into a folder and removes those that are not to be kept.
class CheckpointRotation {
 public:
  CheckpointRotation(std::string folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  const std::string& folder() const { return folder_; }
  // The newest checkpoint there, by whoever read it.
  void found(int64_t step) { newest_ = step; }
  // `best`: the step of the best weights it refers to.
  Status write(int64_t step, std::optional<int64_t> best, const nlohmann::json& header,
               std::span<const CheckpointTensor> tensors);

 private:
  void remove_old() const;

  std::string folder_;
  int64_t keep_;
  std::optional<int64_t> newest_;
  std::map<int64_t, std::optional<int64_t>> bests_;  // of the checkpoints this process wrote
};

}  // namespace plimsoll::engine
