#include "execute/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>

namespace plimsoll::engine {
namespace {

constexpr std::string_view kEnding = ".plimsoll", kOlder = "checkpoint-", kBest = "best-";

// Returns the steps in file names such as checkpoint-120.plimsoll, largest first.
std::vector<int64_t> steps_named(const std::string& folder, std::string_view beginning) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(beginning) || !name.ends_with(kEnding) || name.size() <= beginning.size() + kEnding.size())
      continue;
    const char *from = name.data() + beginning.size(), *to = name.data() + name.size() - kEnding.size();
    int64_t step = -1;
    const auto parsed = std::from_chars(from, to, step);
    if (parsed.ec == std::errc{} && parsed.ptr == to && step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool exists(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 || errno != ENOENT;
}

Status check_whole(const std::string& path) {
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  return checkpoint.verify();
}

}  // namespace

std::string checkpoint_path(const std::string& folder) {
  return folder + "/checkpoint.plimsoll";
}

std::string older_checkpoint_path(const std::string& folder, int64_t step) {
  return fmt::format("{}/{}{}{}", folder, kOlder, step, kEnding);
}

std::string best_weights_path(const std::string& folder, int64_t step) {
  return fmt::format("{}/{}{}{}", folder, kBest, step, kEnding);
}

std::vector<int64_t> older_checkpoints(const std::string& folder) {
  return steps_named(folder, kOlder);
}

bool holds_checkpoint(const std::string& folder) {
  return exists(checkpoint_path(folder)) || !older_checkpoints(folder).empty();
}

Result<Checkpoint> open_stored(const std::string& path) {
  PLIMSOLL_ASSIGN(Checkpoint checkpoint, open_checkpoint(path));
  const nlohmann::json& header = checkpoint.header();
  const nlohmann::json format = header.is_object() ? header.value("format", nlohmann::json()) : nlohmann::json();
  if (format == kCheckpointFormat) return checkpoint;
  return fail(Error{ErrorCode::kBadCheckpoint,
                    fmt::format("{}: this checkpoint was written by another version of plimsoll", path),
                    {fmt::format("its format is {}, this version reads {}",
                                 format.is_string() ? format.get<std::string>() : "not named", kCheckpointFormat)},
                    {"--checkpoint OTHER_DIR without --resume   starts again"}});
}

Result<std::string> settle_checkpoints(const std::string& folder) {
  const std::string newest = checkpoint_path(folder);
  const std::vector<int64_t> older = older_checkpoints(folder);
  const bool missing = !exists(newest);
  if (missing && older.empty()) return std::string();
  Error damage{ErrorCode::kBadCheckpoint, fmt::format("{} is missing", newest), {}, {}};
  if (!missing) {
    Status whole = check_whole(newest);
    if (whole) return std::string();
    if (whole.error().code != ErrorCode::kBadCheckpoint) return fail(std::move(whole).error());
    damage = std::move(whole).error();
  }
  for (const int64_t step : older) {
    const std::string path = older_checkpoint_path(folder, step);
    if (const Status whole = check_whole(path); !whole) {
      damage.fact(whole.error().what);
      continue;
    }
    const std::string aside = folder + "/damaged.plimsoll";
    if (!missing && ::rename(newest.c_str(), aside.c_str()) != 0)
      return fail(write_error(errno, aside, fmt::format("renaming {} to {}", newest, aside)));
    if (::rename(path.c_str(), newest.c_str()) != 0)
      return fail(write_error(errno, newest, fmt::format("renaming {} to {}", path, newest)));
    return fmt::format("note: {}{}\n  continuing from the previous checkpoint, of step {}", damage.what,
                       missing ? "" : fmt::format("; it is kept as {}", aside), step);
  }
  if (older.empty()) damage.fact("there is no older checkpoint in that folder");
  damage.remedies = {"--checkpoint OTHER_DIR without --resume   starts again"};
  return fail(std::move(damage));
}

Status make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) return {};
  return fail(Error{ErrorCode::kNotWritable,
                    fmt::format("cannot create the folder {}: {}", folder, std::strerror(errno)),
                    {},
                    {"--checkpoint DIR   with a folder that you may write to"}});
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const bool made = !exists(folder);
  PLIMSOLL_TRY(make_folder(folder));
  auto lock = LockFile::create(folder + "/checkpoint.lock", fmt::format("the checkpoint folder {}", folder));
  if (lock) return FolderLock(std::move(*lock), folder, made);
  if (made) ::rmdir(folder.c_str());
  Error error = std::move(lock).error();
  if (error.code == ErrorCode::kCheckpointInUse)
    error.remedy("wait until that run has ended").remedy("--checkpoint OTHER_DIR   gives this run a folder of its own");
  return fail(std::move(error));
}

FolderLock::~FolderLock() {
  if (!lock_) return;
  const bool mine = made_ && !folder_.empty();
  lock_.reset();
  if (mine) ::rmdir(folder_.c_str());  // fails, as intended, if the folder is not empty
}

Status CheckpointRotation::write(int64_t step, std::optional<int64_t> best, const nlohmann::json& header,
                                 std::span<const CheckpointTensor> tensors) {
  PLIMSOLL_TRY(make_folder(folder_));
  const std::string newest = checkpoint_path(folder_);
  // At every moment a complete file has the name of the newest checkpoint: the older one gets a second name before it
  // loses the first.
  const auto keep_older = [&] {
    if (keep_ < 2 || !newest_) return;
    const std::string older = older_checkpoint_path(folder_, *newest_);
    ::unlink(older.c_str());
    if (::link(newest.c_str(), older.c_str()) != 0)
      ::rename(newest.c_str(), older.c_str());  // a file system without hard links
  };
  PLIMSOLL_TRY(write_checkpoint(newest, header, tensors, keep_older));
  newest_ = step;
  bests_[step] = best;
  remove_old();
  return {};
}

void CheckpointRotation::remove_old() const {
  std::vector<int64_t> older = older_checkpoints(folder_);
  const auto most = static_cast<size_t>(std::max<int64_t>(keep_ - 1, 0));
  for (size_t i = most; i < older.size(); ++i) ::unlink(older_checkpoint_path(folder_, older[i]).c_str());
  older.resize(std::min(older.size(), most));
  // Best weights are removed together with the last checkpoint that refers to them.
  std::set<int64_t> referred;
  older.push_back(*newest_);
  for (const int64_t step : older) {
    const auto known = bests_.find(step);
    if (known == bests_.end()) return;  // written by an earlier process
    if (known->second) referred.insert(*known->second);
  }
  for (const int64_t step : steps_named(folder_, kBest))
    if (!referred.contains(step)) ::unlink(best_weights_path(folder_, step).c_str());
}

Result<FolderLock> take_checkpoint_folder(const std::string& folder, bool resume,
                                          const std::function<void(const std::string&)>& note) {
  PLIMSOLL_ASSIGN(FolderLock lock, FolderLock::take(folder));
  if (!lock.locks() && note)
    note(
        fmt::format("note: the file system of {} has no locks: make sure that no second run uses this folder", folder));
  if (!resume && holds_checkpoint(folder))
    return fail(Error{ErrorCode::kCheckpointInUse,
                      fmt::format("{} holds the checkpoint of an earlier run, and --resume was not given", folder),
                      {},
                      {"--resume   continues that run", "--checkpoint OTHER_DIR   starts a new run"}});
  if (!resume) return lock;
  PLIMSOLL_ASSIGN(const std::string told, settle_checkpoints(folder));
  if (!told.empty() && note) note(told);
  return lock;
}

}  // namespace plimsoll::engine
