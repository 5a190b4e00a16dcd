// The files of a checkpoint folder: the newest checkpoint, some older ones, the best weights, and the lock.
//
//   checkpoint.plimsoll          the newest checkpoint
//   checkpoint-STEP.plimsoll     older checkpoints, named after the number of optimizer steps
//   best-STEP.plimsoll           weights that early stopping may restore at the end
//   checkpoint.lock              exists while a run uses the folder
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/file/lock.h"

namespace plimsoll::engine {

// Formats 1 and 2 contain plans of older formats (plan/serialize.cpp).
inline constexpr const char* kCheckpointFormat = "plimsoll.checkpoint/3";

std::string checkpoint_path(const std::string& folder);  // path of the newest
std::string older_checkpoint_path(const std::string& folder, int64_t step);
std::string best_weights_path(const std::string& folder, int64_t step);
// Returns the steps of the older checkpoints, largest first.
std::vector<int64_t> older_checkpoints(const std::string& folder);
bool holds_checkpoint(const std::string& folder);

// Opens a checkpoint. Fails with P212 if it has another format than this version's.
Result<Checkpoint> open_stored(const std::string& path);

// Makes sure that the newest checkpoint is not damaged. If it is damaged and an older one is not, the older one takes
// its place and the damaged one is renamed to damaged.plimsoll. Returns a note for the user, or "" if nothing had to be
// done. Fails with P212, and changes nothing, if all checkpoints are damaged. Does nothing in a folder without
// checkpoints.
Result<std::string> settle_checkpoints(const std::string& folder);

// The exclusive right to write to a folder. Creates the folder if it is missing. The destructor removes it if this
// object created it and it is still empty.
class FolderLock {
 public:
  // Fails with P214 if another run has the lock, with P602 if the folder cannot be created.
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  bool locks() const { return locks_; }  // false if the file system has no locks

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

// Writes new checkpoints to a folder and removes those that need not be kept.
class CheckpointRotation {
 public:
  CheckpointRotation(std::string folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  const std::string& folder() const { return folder_; }
  // Sets the step of the newest checkpoint in the folder. Called by the code that has read it.
  void found(int64_t step) { newest_ = step; }
  // `best` is the step of the best weights that the checkpoint refers to.
  Status write(int64_t step, std::optional<int64_t> best, const nlohmann::json& header,
               std::span<const CheckpointTensor> tensors);

 private:
  void remove_old() const;

  std::string folder_;
  int64_t keep_;
  std::optional<int64_t> newest_;
  std::map<int64_t, std::optional<int64_t>>
      bests_;  // checkpoint -> its best weights, for checkpoints that this process wrote
};

}  // namespace plimsoll::engine
